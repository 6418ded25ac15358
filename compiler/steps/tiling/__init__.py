"""The step that tiles: a menu for each kernel, also inside of regions, slices and parts of keys."""
