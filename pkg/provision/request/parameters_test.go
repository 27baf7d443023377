package request

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

func TestParameters(t *testing.T) {
	const csi = reserved
	cases := map[string]struct {
		class     map[string]string
		forDriver map[string]string
		fsType    string
		outdated  []string
		invalid   bool
	}{
		"none": {nil, map[string]string{}, "", nil, false},
		"the driver's own go to the driver": {map[string]string{"type": "ssd", "": "x"},
			map[string]string{"type": "ssd", "": "x"}, "", nil, false},
		"nor does the name of a Secret to modify with": {map[string]string{csi + "controller-modify-secret-name": "s",
			csi + "controller-modify-secret-namespace": "n"}, map[string]string{}, "", nil, false},
		"no Secret to modify with was ever named as of old": {map[string]string{"csiControllerModifySecretName": "s"},
			map[string]string{"csiControllerModifySecretName": "s"}, "", nil, false},
		"a Secret to modify with, misspelt": {map[string]string{csi + "controller-modify-secret": "s"}, nil,
			"", nil, true},
		"parameters for sidecars do not": {map[string]string{csi + "fstype": "xfs",
			csi + "node-stage-secret-name": "s"}, map[string]string{}, "xfs", nil, false},
		"the filesystem as of old goes there too": {map[string]string{"FsType": "xfs"},
			map[string]string{"FsType": "xfs"}, "xfs", []string{"FsType"}, false},
		"a Secret as of old goes there too": {map[string]string{"csiProvisionerSecretName": "s"},
			map[string]string{"csiProvisionerSecretName": "s"}, "", []string{"csiProvisionerSecretName"}, false},
		"two filesystems": {map[string]string{"fstype": "xfs", csi + "fstype": "xfs"},
			nil, "", nil, true},
		"two filesystems as of old": {map[string]string{"fstype": "xfs", "fsType": "xfs"}, nil, "",
			nil, true},
		"a key that is reserved and not known": {map[string]string{csi + "fs-type": "xfs"}, nil, "", nil, true},
		"a reserved key in other letters":      {map[string]string{csi + "FSType": "xfs"}, nil, "", nil, true},
		"reserved parameters are refused":      {map[string]string{csi + "pvc/name": "x"}, nil, "", nil, true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := parametersOf(c.class)
			if c.invalid {
				if ReasonOf(err) != ReasonParameterInvalid || got.forDriver != nil {
					t.Errorf("parametersOf = %+v, %v", got, err)
				}
				return
			}
			if err != nil || !maps.Equal(got.forDriver, c.forDriver) || got.fsType != c.fsType ||
				!slices.Equal(got.outdated, c.outdated) {
				t.Errorf("parametersOf = %+v, %v", got, err)
			}
		})
	}
}

func TestExtraCreateMetadata(t *testing.T) {
	extra := func(f *Facts) { f.Settings.ExtraCreateMetadata = true }
	o, err := NewPlan(facts(extra))
	want := map[string]string{"type": "ssd", "csi.storage.k8s.io/pvc/name": "data",
		"csi.storage.k8s.io/pvc/namespace": "team", "csi.storage.k8s.io/pv/name": volumeName}
	if diff := cmp.Diff(want, o.Request.GetParameters()); diff != "" || err != nil {
		t.Errorf("%s %v", diff, err)
	}
}

func TestSecrets(t *testing.T) {
	const csi = reserved
	named := func(secret, name string) func(*Facts) {
		return func(f *Facts) {
			f.Class.Parameters[csi+secret+"-name"], f.Class.Parameters[csi+secret+"-namespace"] = name, "vault"
		}
	}
	secretsOf := func(f Facts) (map[string]string, error) {
		o, err := NewPlan(f)
		if err != nil {
			return nil, err
		}
		pv, err := o.PV(answer(o))
		if err != nil {
			return nil, err
		}
		all := map[string]string{"deletion": pv.Annotations[volume.AnnDeletionSecretNamespace] + "/" +
			pv.Annotations[volume.AnnDeletionSecretName]}
		if o.Secret != nil {
			all["provisioner"] = o.Secret.Namespace + "/" + o.Secret.Name
		}
		if name, found := pv.Annotations[annModifySecretName]; found {
			all["controller-modify"] = pv.Annotations[annModifySecretNamespace] + "/" + name
		}
		s := pv.Spec.CSI
		for call, ref := range map[string]interface{ String() string }{
			"controller-publish": s.ControllerPublishSecretRef, "node-stage": s.NodeStageSecretRef,
			"node-publish":      s.NodePublishSecretRef,
			"controller-expand": s.ControllerExpandSecretRef, "node-expand": s.NodeExpandSecretRef,
		} {
			if text := ref.String(); text != "nil" {
				_, text, _ = strings.Cut(text, "Name:")
				name, text, _ := strings.Cut(text, ",Namespace:")
				namespace, _, _ := strings.Cut(text, ",")
				all[call] = namespace + "/" + name
			}
		}
		return all, nil
	}
	each := []string{"controller-publish", "node-stage", "node-publish", "controller-expand", "node-expand",
		"controller-modify"}

	none, err := secretsOf(facts())
	if diff := cmp.Diff(map[string]string{"deletion": "/"}, none); diff != "" || err != nil {
		t.Errorf("without any: %s %v", diff, err)
	}
	for _, call := range each {
		got, err := secretsOf(facts(named(call+"-secret", "s")))
		if diff := cmp.Diff(map[string]string{"deletion": "/", call: "vault/s"}, got); diff != "" || err != nil {
			t.Errorf("%s: %s %v", call, diff, err)
		}
	}
	got, err := secretsOf(facts(named("provisioner-secret", "${pv.name}-${pvc.annotations['example.com/s']}"),
		annotation("example.com/s", "x")))
	if diff := cmp.Diff(map[string]string{"deletion": "vault/" + volumeName + "-x",
		"provisioner": "vault/" + volumeName + "-x"}, got); diff != "" || err != nil {
		t.Errorf("for the provisioner: %s %v", diff, err)
	}
	got, err = secretsOf(facts(named("secret", "all-${pvc.name}"), named("node-stage-secret", "own")))
	want := map[string]string{"deletion": "vault/all-data", "provisioner": "vault/all-data"}
	for _, call := range each {
		want[call] = "vault/all-data"
	}
	want["node-stage"] = "vault/own"
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("for all calls: %s %v", diff, err)
	}
	refusals(t, map[string]refusal{
		"half a name": {facts(parameter(csi+"node-expand-secret-name", "s")), ReasonSecretUnclear},
		"half a name, to modify": {facts(parameter(csi+"controller-modify-secret-namespace", "vault")),
			ReasonSecretUnclear},
		"an empty name, to modify": {facts(named("controller-modify-secret", "")), ReasonSecretUnclear},
		"an annotation that is not there": {facts(named("node-stage-secret", "${pvc.annotations['x']}")),
			ReasonSecretUnclear},
		"a name that no Secret can have": {facts(named("secret", "A B")), ReasonSecretUnclear},
	})
}

// TestModifySecretAsUpstream has the Secrets of external-provisioner's "provision with secrets"
// (pkg/controller/controller_test.go). Each call has its own Secret, and the PV names the Secret for modifications in
// its annotations.
func TestModifySecretAsUpstream(t *testing.T) {
	const csi = reserved
	f := facts(annotation("example.com/tier", "gold"))
	for call, name := range map[string]string{
		"provisioner": "provisionersecret", "controller-publish": "ctrlpublishsecret", "node-stage": "nodestagesecret",
		"node-publish":      "nodepublishsecret",
		"controller-expand": "controllerexpandsecret", "node-expand": "nodeexpandsecret",
		"controller-modify": "${pvc.annotations['example.com/tier']}-${pvc.name}",
	} {
		f.Class.Parameters[csi+call+"-secret-name"], f.Class.Parameters[csi+call+"-secret-namespace"] = name,
			"${pvc.namespace}"
	}
	o, pv := mustPlan(t, f), mustPV(t, f)
	want := map[string]string{
		"pv.kubernetes.io/provisioned-by":                            driver,
		"volume.kubernetes.io/controller-modify-secret-name":         "gold-data",
		"volume.kubernetes.io/controller-modify-secret-namespace":    "team",
		"volume.kubernetes.io/provisioner-deletion-secret-name":      "provisionersecret",
		"volume.kubernetes.io/provisioner-deletion-secret-namespace": "team",
	}
	if diff := cmp.Diff(want, pv.Annotations); diff != "" {
		t.Error(diff)
	}
	if o.Request.Parameters["type"] != "ssd" || len(o.Request.Parameters) != 1 {
		t.Errorf("the driver is told %v", o.Request.Parameters)
	}
}

// FuzzClass plans with classes and claims of any content. It checks that no input panics, no parameter for sidecars
// reaches the driver, and every failure has a reason.
func FuzzClass(f *testing.F) {
	for _, key := range slices.Sorted(maps.Keys(secretKeys())) {
		f.Add(key, "${pvc.annotations['k']}", strings.TrimSuffix(key, "name")+"namespace", "${pvc.namespace}", "v")
	}
	f.Add(reserved+"fstype", "xfs", "fsType", "xfs", "")
	f.Add(reserved+"x", "", "\xff", "\x00", "")
	f.Add("fſtype", "ext4", "FSTYPE", "ext4", "")
	f.Fuzz(func(t *testing.T, key1, value1, key2, value2, annotated string) {
		class := facts(parameter(key1, value1), parameter(key2, value2), annotation("k", annotated))
		o, err := NewPlan(class)
		if err != nil {
			if ReasonOf(err) == "" || o.Request != nil || len(err.Error()) > maxWords {
				t.Errorf("NewPlan: %+v, %v", o, err)
			}
			return
		}
		for key, value := range o.Request.Parameters {
			if strings.HasPrefix(key, reserved) || class.Class.Parameters[key] != value {
				t.Errorf("the driver is told %q=%q", key, value)
			}
		}
		if _, err := o.PV(answer(o)); err != nil {
			t.Errorf("PV: %v", err)
		}
	})
}
