module github.com/csi-reclaimer/csi-reclaimer/tools/release

go 1.26.0

require (
	github.com/Masterminds/semver/v3 v3.5.0
	github.com/secure-systems-lab/go-securesystemslib v0.11.1
)

require (
	golang.org/x/crypto v0.55.0 // indirect
	golang.org/x/sys v0.47.0 // indirect
)
