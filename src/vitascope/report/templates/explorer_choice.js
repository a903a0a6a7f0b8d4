// What is chosen, and what there is to see of it. One function with the files that follow it.
var holder = document.getElementById("ex-data"), live = document.getElementById("ex-live");
if (!holder || !live) return;
var data = JSON.parse(holder.textContent), models = data.models;
function $(id) { return document.getElementById(id); }
function make(tag, css, text) {
  var node = document.createElement(tag);
  if (css) node.className = css;
  if (text !== undefined) node.textContent = text;
  return node;
}

var pictures = data.images, keys = Object.keys(pictures);  // key -> {src, label}
models.forEach(function (model) { model.parts = [model]; });
var state = {
  picture: keys[0], layer: 0, head: 0, gate: "learned", fy: 0.5, fx: 0.5, pinned: false, stretch: false,
  shown: models.length > 1 ? data.shown : [0], step: 0, token: ""  // "": a patch asks
};
state.head = Math.min.apply(null, state.shown.map(function (i) { var first = models[i].layers[0]; return first ? first.heads : 2; })) >> 1;
var epochs = [];

function viewOf(model) {  // what there is to see of a model at the choice made, or why nothing
  for (var p = 0; p < model.parts.length; p++) {
    var part = model.parts[p], image = part.images.indexOf(state.picture);
    if (image < 0) continue;
    if (!part.layers.length) return { why: part.relevance.length ? "This network has no attention. Bright places: what its prediction depends on" + (placeOf(part) ? ", and features like those under the pointer." : ".") : "This network has no attention.", part: part, image: image };
    if (state.layer >= part.layers.length) return { why: "This model has " + part.layers.length + " attention layers.", part: part, image: image };
    var layer = opened(part.layers[state.layer]);
    if (state.head >= layer.heads) return { why: "This layer has " + layer.heads + " heads.", part: part, image: image };
    if (state.token && layer.queryTokens.indexOf(state.token) < 0) return { why: "There is no " + state.token + " in this layer.", part: part, image: image };
    var epoch = 0;
    for (var e = 0; e < part.epochs.length; e++) if (part.epochs[e] === null || part.epochs[e] <= epochs[state.step]) epoch = e;
    return { id: model.label + p, part: part, layer: layer, index: state.layer, epoch: epoch, image: image };
  }
  return { why: "This image was not given to this model." };
}
function placeOf(part) {  // the place that is pointed at in a network without attention, if its features are compared
  var one = part.relevance.filter(function (found) { return found.pairs; })[0];
  if (!one) return null;
  var h = one.grid[0], w = one.grid[1];
  return { y: Math.min(h - 1, Math.floor(state.fy * h)), x: Math.min(w - 1, Math.floor(state.fx * w)), h: h, w: w };
}
function pointed() {  // the grid that is pointed at: of the first model with attention, or of features
  var views = shown().map(viewOf), first = views.filter(function (view) { return view.layer; })[0];
  if (first) return queryOf(first.layer);
  return views.map(function (view) { return view.part && placeOf(view.part); }).filter(Boolean)[0];
}
function queryOf(layer) {
  var only = !layer.Q, h = only ? layer.keys[0] : layer.grid[0], w = only ? layer.keys[1] : layer.grid[1];
  var y = Math.min(h - 1, Math.floor(state.fy * h)), x = Math.min(w - 1, Math.floor(state.fx * w));
  var token = state.token ? layer.queryTokens.indexOf(state.token) : -1;
  if (only) token = Math.max(0, token);  // class attention: no patch asks
  if (token >= 0) return { q: layer.Q + token, token: layer.queryTokens[token], h: h, w: w, y: y, x: x };
  return { y: y, x: x, q: y * w + x, h: h, w: w };
}
function tokensShown() {  // names of the tokens without coordinates, of all layers that are shown
  var names = [];
  shown().forEach(function (model) { model.parts[0].layers.forEach(function (layer) {
    layer.queryTokens.forEach(function (name) { if (names.indexOf(name) < 0) names.push(name); });
  }); });
  return names;
}
function shown() { return state.shown.map(function (i) { return models[i]; }); }
