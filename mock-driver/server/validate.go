package server

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/backend"
)

// Size limits in bytes of the specification, section "Size Limits".
const (
	maxString = 128
	maxMap    = 4 << 10
)

// required returns an error about the first empty field, with the fields as pairs of name and value.
func required(fields ...string) error {
	for i := 0; i+1 < len(fields); i += 2 {
		if fields[i+1] == "" {
			return invalid("%s is required", fields[i])
		}
	}
	return nil
}

// checkName applies the limits of CreateVolumeRequest.name.
func checkName(name string) error {
	switch {
	case name == "":
		return invalid("name is required")
	case len(name) > maxString:
		return invalid("name has %d bytes, the limit is %d", len(name), maxString)
	case strings.ContainsFunc(name, bannedInName):
		return invalid("name contains a control character")
	}
	return nil
}

func bannedInName(r rune) bool {
	return r <= 0x08 || r == 0x0b || r == 0x0c || r >= 0x0e && r <= 0x1f || r >= 0x7f && r <= 0x9f
}

func checkMap(field string, m map[string]string) error {
	size := 0
	for k, v := range m {
		size += len(k) + len(v)
	}
	if size > maxMap {
		return invalid("%s has %d bytes, the limit is %d", field, size, maxMap)
	}
	return nil
}

func checkPath(field, path string) error {
	switch {
	case path == "":
		return invalid("%s is required", field)
	case !filepath.IsAbs(path):
		return invalid("%s %q is not an absolute path", field, path)
	}
	return nil
}

// checkMutable accepts the driver's mutable parameters: tier, iops, throughput and health.
func checkMutable(m map[string]string) error {
	for _, key := range slices.Sorted(maps.Keys(m)) {
		value := m[key]
		switch key {
		case "tier":
			if value == "" {
				return invalid("mutable parameter tier is empty")
			}
		case "iops", "throughput":
			if n, err := strconv.ParseInt(value, 10, 64); err != nil || n <= 0 {
				return invalid("mutable parameter %s: %q is not a positive number", key, value)
			}
		case healthParameter:
			if _, known := healthOf(value); !known {
				return invalid("mutable parameter %s: %q is not one of healthy, degraded, inaccessible, data-loss", key, value)
			}
		default:
			return invalid("mutable parameter %q is not known: want tier, iops, throughput or %s", key, healthParameter)
		}
	}
	return checkMap("mutable_parameters", m)
}

// accessList converts the volume capabilities of a request, which must have at least one.
func accessList(caps []*csi.VolumeCapability, multiWriter bool) ([]backend.Access, error) {
	if len(caps) == 0 {
		return nil, invalid("volume_capabilities are required")
	}
	list := make([]backend.Access, len(caps))
	for i, c := range caps {
		var err error
		if list[i], err = access(c, multiWriter); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// access converts a volume capability, where multiWriter tells whether the service has the SINGLE_NODE_MULTI_WRITER
// capability, which two access modes require.
func access(c *csi.VolumeCapability, multiWriter bool) (backend.Access, error) {
	if c == nil {
		return backend.Access{}, invalid("volume_capability is required")
	}
	a := backend.Access{Mode: backend.AccessMode(c.GetAccessMode().GetMode().String())}
	switch a.Mode {
	case backend.SingleNodeWriter, backend.SingleNodeReaderOnly,
		backend.MultiNodeReaderOnly, backend.MultiNodeSingleWriter, backend.MultiNodeMultiWriter:
	case backend.SingleNodeSingleWriter, backend.SingleNodeMultiWriter:
		if !multiWriter {
			return backend.Access{}, invalid("access mode %s needs the SINGLE_NODE_MULTI_WRITER capability", a.Mode)
		}
	default:
		return backend.Access{}, invalid("volume_capability.access_mode is required")
	}
	switch t := c.GetAccessType().(type) {
	case *csi.VolumeCapability_Block:
		a.Block = true
	case *csi.VolumeCapability_Mount:
		a.FSType = t.Mount.GetFsType()
		if flags, group := t.Mount.GetMountFlags(), t.Mount.GetVolumeMountGroup(); len(flags) > 0 || group != "" {
			a.Options = digest(append(slices.Clone(flags), "group="+group)...)
		}
	default:
		return backend.Access{}, invalid("volume_capability.access_type is required")
	}
	return a, nil
}

// digest returns a short hash that identifies values without revealing them.
func digest(values ...string) string {
	h := sha256.New()
	for _, v := range values {
		_, _ = fmt.Fprintf(h, "%d:%s", len(v), v) // A hash never fails.
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// digestMaps returns a digest that identifies maps, or "" if all maps are empty.
func digestMaps(list ...map[string]string) string {
	var values []string
	for i, m := range list {
		for _, key := range slices.Sorted(maps.Keys(m)) {
			values = append(values, strconv.Itoa(i), key, m[key])
		}
	}
	if len(values) == 0 {
		return ""
	}
	return digest(values...)
}

// validDriverName checks the form of GetPluginInfoResponse.name: a domain name of at most 63 characters.
func validDriverName(name string) bool {
	alnum := func(b byte) bool { return b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b >= '0' && b <= '9' }
	if len(name) == 0 || len(name) > 63 || !alnum(name[0]) || !alnum(name[len(name)-1]) {
		return false
	}
	for i := range len(name) {
		if !alnum(name[i]) && name[i] != '-' && name[i] != '.' {
			return false
		}
	}
	return true
}
