// Package sanity runs csi-sanity, the conformance suite of kubernetes-csi/csi-test, against the mock driver: in full,
// for several kinds of drivers, with the real process behind a real socket. The package has only tests, also for
// features that csi-sanity omits (paging is pending upstream).
package sanity
