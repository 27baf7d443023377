package request

import (
	"fmt"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	v1 "k8s.io/api/core/v1"
)

func TestCapabilities(t *testing.T) {
	multiWriter := func(f *Facts) {
		f.Driver.Controller[csi.ControllerServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER] = true
	}
	options := func(f *Facts) { f.Class.MountOptions = []string{"noatime"} }
	cases := map[string]struct {
		f    Facts
		want string
	}{
		"one node":                               {facts(), "SINGLE_NODE_WRITER mount  []"},
		"one node, driver that tells pods apart": {facts(multiWriter), "SINGLE_NODE_MULTI_WRITER mount  []"},
		"one pod":                                {facts(modes(v1.ReadWriteOncePod)), "SINGLE_NODE_WRITER mount  []"},
		"one pod, driver that tells pods apart": {facts(modes(v1.ReadWriteOncePod), multiWriter),
			"SINGLE_NODE_SINGLE_WRITER mount  []"},
		"readers": {facts(modes(v1.ReadOnlyMany)), "MULTI_NODE_READER_ONLY mount  []"},
		"writers": {facts(modes(v1.ReadWriteMany)), "MULTI_NODE_MULTI_WRITER mount  []"},
		"one for each mode, in the claim's order": {facts(modes(v1.ReadOnlyMany, v1.ReadWriteOnce)),
			"MULTI_NODE_READER_ONLY mount  []; SINGLE_NODE_WRITER mount  []"},
		"filesystem and mount options of the class": {facts(parameter("csi.storage.k8s.io/fstype", "xfs"), options),
			"SINGLE_NODE_WRITER mount xfs [noatime]"},
		"filesystem of the settings": {facts(func(f *Facts) { f.Settings.DefaultFSType = "ext4" }),
			"SINGLE_NODE_WRITER mount ext4 []"},
		"filesystem of the class before the settings'": {facts(parameter("fsType", "xfs"),
			func(f *Facts) { f.Settings.DefaultFSType = "ext4" }), "SINGLE_NODE_WRITER mount xfs []"},
		"a claim that says nothing of a mode, filesystem": {facts(func(f *Facts) { f.Claim.Spec.VolumeMode = nil }),
			"SINGLE_NODE_WRITER mount  []"},
		"a device has neither filesystem nor options": {facts(blockMode, options,
			parameter("csi.storage.k8s.io/fstype", "xfs")), "SINGLE_NODE_WRITER block"},
		"no access mode is refused":         {facts(modes()), string(ReasonClaimInvalid)},
		"an unknown access mode is refused": {facts(modes("Whatever")), string(ReasonClaimInvalid)},
		"one pod beside other access modes is refused": {facts(modes(v1.ReadWriteOnce, v1.ReadWriteOncePod)),
			string(ReasonClaimInvalid)},
		"one pod twice is refused as beside another": {facts(modes(v1.ReadWriteOncePod, v1.ReadWriteOncePod)),
			string(ReasonClaimInvalid)},
		"a filesystem of an empty name is the driver's own": {facts(parameter("csi.storage.k8s.io/fstype", "")),
			"SINGLE_NODE_WRITER mount  []"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			o, err := NewPlan(c.f)
			var got []string
			for _, capability := range o.Request.GetVolumeCapabilities() {
				text := capability.AccessMode.Mode.String()
				if capability.GetBlock() != nil {
					text += " block"
				} else {
					text += fmt.Sprintf(" mount %s %v", capability.GetMount().FsType, capability.GetMount().MountFlags)
				}
				got = append(got, text)
			}
			if err != nil {
				got = []string{string(ReasonOf(err))}
			}
			if strings.Join(got, "; ") != c.want {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
}

func TestSize(t *testing.T) {
	for text, want := range map[string]int64{"5Gi": 5 * gib, "1": 1, "1500m": 2, "1G": 1e9} {
		o, err := NewPlan(facts(size(text)))
		if got := o.Request.GetCapacityRange(); err != nil || got.RequiredBytes != want || got.LimitBytes != 0 {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
}
