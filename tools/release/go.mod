module github.com/csi-reclaimer/csi-reclaimer/tools/release

go 1.26.0

require github.com/Masterminds/semver/v3 v3.5.0
