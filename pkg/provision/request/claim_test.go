package request

import (
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

func TestVolumeName(t *testing.T) {
	const uid = "0f0c4b1e-7a51-4d2a-9f5e-3f6f1d2c8b7a"
	cases := map[string]struct {
		s    Settings
		uid  types.UID
		want string
	}{
		"without settings, as the stock provisioner": {Settings{}, uid, "pvc-" + uid},
		"all of the UID, said so":                    {Settings{VolumeNameUUIDLength: -1}, uid, "pvc-" + uid},
		"a prefix":                                   {Settings{VolumeNamePrefix: "disk"}, uid, "disk-" + uid},
		"part of the UID, without dashes":            {Settings{VolumeNameUUIDLength: 10}, uid, "pvc-0f0c4b1e7a"},
		"all of the UID, without dashes": {Settings{VolumeNameUUIDLength: 32}, uid,
			"pvc-0f0c4b1e7a514d2a9f5e3f6f1d2c8b7a"},
		"a UID shorter than that": {Settings{VolumeNameUUIDLength: 10}, "a-b", "pvc-ab"},
		"no UID is no name":       {Settings{}, "", ""},
		"nor is one of dashes":    {Settings{VolumeNameUUIDLength: 10}, "--", ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := VolumeName(c.s, c.uid)
			if got != c.want || (err == nil) != (c.want != "") || err != nil && ReasonOf(err) != ReasonClaimInvalid {
				t.Errorf("VolumeName = %q, %v", got, err)
			}
		})
	}
}

func TestIsVolumeName(t *testing.T) {
	t.Parallel()
	const uid = "0f0c4b1e-7a51-4d2a-9f5e-3f6f1d2c8b7a"
	for name, want := range map[string]bool{
		"pvc-" + uid: true, "a-long-prefix-" + uid: true, "disk-0f0c": true, "disk-0f0c4b1e7a51": true,
		uid: false, "0f0c": false, "data-0f0d": false, "data-": false, "data": false, "disk-8b7a": false,
		"pvc-" + uid + "-apart-01234567": false,
	} {
		if got := IsVolumeName(name, uid); got != want {
			t.Errorf("%q: %t, want %t", name, got, want)
		}
	}
	if IsVolumeName("data-", "") || IsVolumeName("pvc-"+uid, "") {
		t.Error("a claim without UID has a volume")
	}
}

func TestSettings(t *testing.T) {
	cases := map[string]struct {
		s  Settings
		ok bool
	}{
		"the zero value":                    {Settings{}, true},
		"all of the UID without its dashes": {Settings{VolumeNameUUIDLength: 32}, true},
		"more than a UID has":               {Settings{VolumeNameUUIDLength: 33}, false},
		"less than nothing":                 {Settings{VolumeNameUUIDLength: -2}, false},
		"a prefix that no PV can have":      {Settings{VolumeNamePrefix: "Disk_"}, false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if err := c.s.Validate(); (err == nil) != c.ok {
				t.Errorf("Validate: %v", err)
			}
		})
	}
}

func TestClaimChecks(t *testing.T) {
	refusals(t, map[string]refusal{
		"ours": {facts(), ""},
		"ours by the annotation of old": {facts(func(f *Facts) {
			f.Claim.Annotations = map[string]string{volume.AnnProvisionerBeta: driver}
		}), ""},
		"today's annotation goes first": {facts(annotation(volume.AnnProvisioner, "other"),
			annotation(volume.AnnProvisionerBeta, driver)), ReasonNotOurs},
		"migrated to us": {facts(annotation(volume.AnnProvisioner, "kubernetes.io/other"),
			annotation(volume.AnnMigratedTo, driver)), ""},
		"another's":          {facts(annotation(volume.AnnProvisioner, "other")), ReasonNotOurs},
		"without annotation": {facts(func(f *Facts) { f.Claim.Annotations = nil }), ReasonNotOurs},
		"a driver that has no name": {facts(func(f *Facts) {
			f.Claim.Annotations, f.Driver.Name, f.Class.Provisioner = nil, "", ""
		}), ReasonNotOurs},
		"a class of another provisioner": {facts(func(f *Facts) { f.Class.Provisioner = "other" }), ReasonNotOurs},
		"the class is gone":              {facts(func(f *Facts) { f.Class = nil }), ReasonClassMissing},
		"another class":                  {facts(func(f *Facts) { f.Class.Name = "slow" }), ReasonClassMissing},
		"the class by the annotation": {facts(annotation(v1.BetaStorageClassAnnotation, "fast"),
			func(f *Facts) { f.Claim.Spec.StorageClassName = nil }), ""},
		"the annotation goes first": {facts(annotation(v1.BetaStorageClassAnnotation, "slow")), ReasonClassMissing},
		"a claim without a class": {facts(func(f *Facts) { f.Claim.Spec.StorageClassName = nil }),
			ReasonClassMissing},
		"a claim without UID": {facts(func(f *Facts) { f.Claim.UID = "" }), ReasonClaimInvalid},
		"a selector": {facts(func(f *Facts) { f.Claim.Spec.Selector = &metav1.LabelSelector{} }),
			ReasonClaimUnsupported},
		"no size": {facts(func(f *Facts) { f.Claim.Spec.Resources.Requests = nil }),
			ReasonClaimInvalid},
		"a size below zero":                    {facts(size("-1")), ReasonClaimInvalid},
		"a size of 2^64 + 1, whose value is 1": {facts(size("18446744073709551617")), ReasonClaimInvalid},
		"a size whose value is 0":              {facts(size("100E")), ReasonClaimInvalid},
		"the smallest size that is too large":  {facts(size("9223372036854775808")), ReasonClaimInvalid},
		"a class that binds late, no pod":      {facts(late), ReasonNodeNotSelected},
		"a class that binds late, and one":     {facts(late, annotation(volume.AnnSelectedNode, "n")), ""},
	})
}

func TestCheckDriver(t *testing.T) {
	without := func(c csi.ControllerServiceCapability_RPC_Type) func(*Facts) {
		return func(f *Facts) { delete(f.Driver.Controller, c) }
	}
	attributes := func(f *Facts) {
		gold := "gold"
		f.Claim.Spec.VolumeAttributesClassName = &gold
		f.Attributes = &storagev1.VolumeAttributesClass{ObjectMeta: metav1.ObjectMeta{Name: gold}, DriverName: driver}
	}
	refusals(t, map[string]refusal{
		"no controller": {facts(func(f *Facts) { f.Driver.Plugin = nil }), ReasonDriverIncapable},
		"makes no volumes": {facts(without(csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME)),
			ReasonDriverIncapable},
		"restores": {facts(restored()), ""},
		"restores nothing": {facts(restored(), without(csi.ControllerServiceCapability_RPC_CREATE_DELETE_SNAPSHOT)),
			ReasonDriverIncapable},
		"clones": {facts(cloned()), ""},
		"clones nothing": {facts(cloned(), without(csi.ControllerServiceCapability_RPC_CLONE_VOLUME)),
			ReasonDriverIncapable},
		"modifies": {facts(attributes), ""},
		"modifies nothing": {facts(attributes, without(csi.ControllerServiceCapability_RPC_MODIFY_VOLUME)),
			ReasonDriverIncapable},
		"need not do it all": {facts(without(csi.ControllerServiceCapability_RPC_MODIFY_VOLUME),
			without(csi.ControllerServiceCapability_RPC_CLONE_VOLUME)), ""},
		"attributes not there": {facts(attributes, func(f *Facts) { f.Attributes = nil }), ReasonAttributesClassMissing},
		"attributes of another name": {facts(attributes, func(f *Facts) { f.Attributes.Name = "silver" }),
			ReasonAttributesClassMissing},
		"attributes of another driver": {facts(attributes, func(f *Facts) { f.Attributes.DriverName = "other" }),
			ReasonAttributesClassForeign},
		"attributes that are not served": {facts(attributes,
			func(f *Facts) { f.Attributes, f.AttributesUnserved = nil, true }), ReasonAttributesClassUnserved},
		"attributes switched off": {facts(attributes, func(f *Facts) { f.Settings.NoAttributesClass = true }),
			ReasonAttributesClassUnserved},
		"an empty name is no class": {facts(func(f *Facts) { none := ""; f.Claim.Spec.VolumeAttributesClassName = &none }),
			""},
	})
	f := facts(attributes, func(f *Facts) { f.Attributes.Parameters = map[string]string{"iops": "9"} })
	if o, err := NewPlan(f); err != nil || o.Request.MutableParameters["iops"] != "9" ||
		o.Request.Parameters["iops"] != "" {
		t.Errorf("mutable parameters %v, %v", o.Request.GetMutableParameters(), err)
	}
}
