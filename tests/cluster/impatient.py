"""``ebs-provisioner`` that gives its leases up after seconds without credentials, not a minute."""

from provisioner import cli
from provisioner.controller.ownership import aws_access

if __name__ == "__main__":
    aws_access.GIVE_UP_S, aws_access.LOOK_EVERY_S = 4.0, 1.0
    cli.main()
