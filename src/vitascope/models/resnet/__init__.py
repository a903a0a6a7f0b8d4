"""Pre-activation ResNets and AlterNet."""
