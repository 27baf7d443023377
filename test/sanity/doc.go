// Package sanity runs csi-sanity, the conformance suite of kubernetes-csi/csi-test, against the mock driver: in full,
// for several kinds of drivers, with the real process behind a real socket. There is nothing here but tests. What
// csi-sanity leaves out (paging is pending upstream) is tested here as well.
package sanity
