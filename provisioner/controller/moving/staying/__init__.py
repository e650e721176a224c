"""A volume that stays, and gets another PersistentVolume: in CSI form, of a class, of a driver."""
