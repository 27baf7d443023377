package objects

// DriverLabel on a Lease for leader election names the CSI driver of the csi-reclaimer that wrote it.
const DriverLabel = "csi-reclaimer.io/driver"
