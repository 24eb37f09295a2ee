"""Every method of the catalogue under every question, on the same images and seeds."""
