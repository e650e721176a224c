"""``ebs-provisioner`` that gives its leases up after seconds without credentials, not a minute."""

from provisioner import cli
from provisioner.controller.ownership import own_cloud

if __name__ == "__main__":
    own_cloud.GIVE_UP_S, own_cloud.LOOK_EVERY_S = 4.0, 1.0
    cli.main()
