"""The claims of a StatefulSet, replica by replica: ``kubectl ebs move sts/NAME``."""
