"""One file for each kind that is reviewed, one for repairs, one for certificates. Pure."""
