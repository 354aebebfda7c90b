"""One file a topic: what is asked, on which inputs, and which mistakes are usual."""
