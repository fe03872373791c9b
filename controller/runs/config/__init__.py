"""What a run is asked to do: a document of keys in, one checked and frozen ``RunConfig`` out."""
