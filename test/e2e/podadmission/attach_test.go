//go:build unix

package podadmission

import (
	"context"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/utils/ptr"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/suite"
)

const attachLock = "csi-reclaimer-attach-lock"

// lock returns the VolumeLock of a node, with this volume and another one.
func lock(t *testing.T, volume, node string) object {
	t.Helper()
	return parse(t, `
apiVersion: csi-reclaimer.io/v1alpha1
kind: VolumeLock
metadata: {name: `+node+`}
spec:
  volumes:
    `+volume+`: {namespace: ns, pod: web-0, uid: the-uid}
    another: {namespace: ns, pod: web-1, uid: u}`)[0]
}

// attach creates a VolumeAttachment without an attacher, and returns its name.
func attach(t *testing.T, volume, node string, options metav1.CreateOptions) (name string, err error) {
	t.Helper()
	return attachSource(t, storagev1.VolumeAttachmentSource{PersistentVolumeName: &volume}, node, options)
}

func attachSource(t *testing.T, source storagev1.VolumeAttachmentSource, node string,
	options metav1.CreateOptions) (name string, err error) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	attachments := client.StorageV1().VolumeAttachments()
	name = "attachment-" + rand.String(8)
	_, err = attachments.Create(ctx, &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       storagev1.VolumeAttachmentSpec{Attacher: "a.example.com", NodeName: node, Source: source},
	}, options)
	t.Cleanup(func() {
		if err := attachments.Delete(ctx, name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			t.Error(err)
		}
	})
	return name, err
}

// attachable reports whether a volume could be attached to another node than its lock's.
func attachable(t *testing.T, volume string) bool {
	t.Helper()
	_, err := attach(t, volume, "other", metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil && suite.PolicyIn(err.Error()) != attachLock {
		t.Fatal(err)
	}
	return err == nil
}

func TestLockedVolumeAttachesOnlyToItsNode(t *testing.T) {
	waitEstablished(t)
	ctx := t.Context()
	before, err := attach(t, "locked", "away", metav1.CreateOptions{})
	must(t, err)
	locked := lock(t, "locked", "away")
	removeAtEnd(t, locked)
	must(t, apply(ctx, locked))
	until(t, "the lock to be in force", func() bool { return !attachable(t, "locked") })

	_, err = attach(t, "locked", "other", metav1.CreateOptions{})
	if !apierrors.IsForbidden(err) {
		t.Fatalf("attached to another node: %v", err)
	}
	for _, word := range []string{"volume locked", "node other", "pod ns/web-0", "node away",
		"kubectl annotate pod --namespace ns web-0 " + confirm + "=the-uid",
		`kubectl patch volumelock away --type=json -p '[{"op":"remove","path":"/spec/volumes/locked"}]'`} {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("no %q in %q", word, err)
		}
	}
	inline := storagev1.VolumeAttachmentSource{InlineVolumeSpec: &v1.PersistentVolumeSpec{
		AccessModes:            []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce},
		PersistentVolumeSource: v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{Driver: "d", VolumeHandle: "h"}},
	}}
	for sentence, source := range map[string]struct {
		of   storagev1.VolumeAttachmentSource
		node string
	}{
		"to the node of the lock":    {storagev1.VolumeAttachmentSource{PersistentVolumeName: ptr.To("locked")}, "away"},
		"another volume":             {storagev1.VolumeAttachmentSource{PersistentVolumeName: ptr.To("unlocked")}, "other"},
		"a volume without an object": {inline, "other"},
	} {
		if _, err := attachSource(t, source.of, source.node, metav1.CreateOptions{}); err != nil {
			t.Errorf("attach %s: %v", sentence, err)
		}
	}
	// A VolumeAttachment is written to and deleted as ever.
	attachments := client.StorageV1().VolumeAttachments()
	_, err = attachments.Patch(ctx, before, types.MergePatchType, []byte(`{"status":{"attached":true}}`),
		metav1.PatchOptions{}, "status")
	must(t, err)
	must(t, attachments.Delete(ctx, before, metav1.DeleteOptions{}))
	if attachable(t, "locked") {
		t.Error("attachable to another node once detached")
	}
	must(t, remove(ctx, locked))
	until(t, "the end of the lock", func() bool { return attachable(t, "locked") })
}

// TestRefusalNamesWayOut carries out the command of the refusal on a lock with a single volume.
func TestRefusalNamesWayOut(t *testing.T) {
	waitEstablished(t)
	ctx := t.Context()
	single := parse(t, `
apiVersion: csi-reclaimer.io/v1alpha1
kind: VolumeLock
metadata: {name: away-single}
spec: {volumes: {single: {namespace: ns, pod: web-0, uid: the-uid}}}`)[0]
	removeAtEnd(t, single)
	must(t, apply(ctx, single))
	until(t, "the lock to be in force", func() bool { return !attachable(t, "single") })
	_, err := attach(t, "single", "other", metav1.CreateOptions{})
	if err == nil {
		t.Fatal("attached to another node")
	}
	_, command, _ := strings.Cut(err.Error(), "kubectl patch volumelock away-single --type=json -p '")
	patch, _, found := strings.Cut(command, "'")
	if !found {
		t.Fatalf("no command in %q", err)
	}
	must(t, client.RESTClient().Patch(types.JSONPatchType).AbsPath(single.path()).Body([]byte(patch)).Do(ctx).Error())
	until(t, "the end of the lock", func() bool { return attachable(t, "single") })
	_, err = attach(t, "another", "other", metav1.CreateOptions{})
	must(t, err)
}

// A lock that the policy cannot read would keep every volume from being attached.
func TestIncompleteVolumeLocksAreRefused(t *testing.T) {
	waitEstablished(t)
	ctx := t.Context()
	for _, field := range []string{"namespace: ns", "pod: p", "uid: u"} {
		for _, with := range []string{"", strings.Fields(field)[0] + ` ""`} {
			const all = "spec: {volumes: {volume: {namespace: ns, pod: p, uid: u}}}"
			text := strings.Replace(all, field, with, 1)
			text = strings.NewReplacer("{, ", "{", ", , ", ", ", ", }", "}").Replace(text)
			o := parse(t, "apiVersion: csi-reclaimer.io/v1alpha1\nkind: VolumeLock\nmetadata: {name: v}\n"+text)
			if err := apply(ctx, o...); !apierrors.IsInvalid(err) {
				t.Errorf("%s: %v", text, err)
			}
		}
	}
	for _, text := range []string{"spec: {}", "a: b", "spec: null", "spec: {volumes: null}", "spec: {volumes: {v: {}}}",
		"spec: {volumes: {v: ns/p/u}}", "spec: {volumes: {v: null}}", "spec: {volumes: [v]}"} {
		o := parse(t, "apiVersion: csi-reclaimer.io/v1alpha1\nkind: VolumeLock\nmetadata: {name: v}\n"+text)
		if err := apply(ctx, o...); err == nil {
			t.Errorf("%s: accepted", text)
		}
	}
}

// An API server can convert a whole VolumeLock for each VolumeAttachment, which would name each volume twice.
func TestManagedFieldsOfVolumeLockNameNoVolume(t *testing.T) {
	waitEstablished(t)
	l := lock(t, "once", "away-managed")
	removeAtEnd(t, l)
	must(t, apply(t.Context(), l))
	text, err := client.RESTClient().Get().AbsPath(l.path()).Do(t.Context()).Raw()
	must(t, err)
	if got := strings.Count(string(text), `once"`); got != 1 || !strings.Contains(string(text), "managedFields") {
		t.Errorf("the volume is named %d times in %s", got, text)
	}
}

// Parameters of a built-in kind would not be read after a reinstallation (kubernetes/kubernetes#130887).
func TestVolumeLocksApplyAfterReinstall(t *testing.T) {
	suite.Deep(t, suite.WaitsForClock)
	waitEstablished(t)
	ctx := t.Context()
	var policy, binding, keeper []object
	for _, o := range manifest(t, policiesFile) {
		switch {
		case o.GetName() == attachLock && o.GetKind() == "ValidatingAdmissionPolicy":
			policy = append(policy, o)
		case o.GetName() == attachLock:
			binding = append(binding, o)
		case o.GetName() == attachLock+"-kind":
			keeper = append(keeper, o)
		}
	}
	crd := manifest(t, crdFile)
	for sentence, removed := range map[string][]object{
		"the binding":                   binding,
		"the policy":                    policy,
		"binding and policy":            append(binding[:1:1], policy...),
		"binding, policy, and the kind": append(append(append(keeper[:2:2], binding...), policy...), crd...),
	} {
		volume := "v-" + rand.String(5)
		first := lock(t, volume+"-1", volume+"-away-1")
		must(t, apply(ctx, first))
		until(t, sentence+": the first lock to be in force", func() bool { return !attachable(t, volume+"-1") })
		until(t, sentence+" to be removed", func() bool { return remove(ctx, removed...) == nil })
		until(t, sentence+": the end of the lock", func() bool { return attachable(t, volume+"-1") })
		if len(removed) > 2 {
			until(t, "the kind to be gone", func() bool {
				return apierrors.IsNotFound(client.RESTClient().Get().AbsPath(crd[0].path()).Do(ctx).Error())
			})
			must(t, apply(ctx, crd...))
			waitEstablished(t)
		}
		must(t, apply(ctx, append(append(policy[:1:1], binding...), keeper...)...))
		if len(removed) > 2 {
			// It went with the kind. Until the API server has seen the end of the former kind, it takes no new object.
			until(t, "a lock to be created", func() bool { return apply(ctx, first) == nil })
		}
		until(t, sentence+": the first lock to be in force again", func() bool { return !attachable(t, volume+"-1") })
		second := lock(t, volume+"-2", volume+"-away-2") // it was not there when the policy was
		must(t, apply(ctx, second))
		until(t, sentence+": the second lock to be in force", func() bool { return !attachable(t, volume+"-2") })
		must(t, remove(ctx, first, second))
		until(t, sentence+": the end of both", func() bool {
			return attachable(t, volume+"-1") && attachable(t, volume+"-2")
		})
	}
}

// TestVolumeLockKindCannotBeDeleted also shows the reason: without the kind of its parameters, a policy refuses every
// VolumeAttachment.
func TestVolumeLockKindCannotBeDeleted(t *testing.T) {
	waitEstablished(t)
	crd := manifest(t, crdFile)
	until(t, "the deletion of the kind to be refused", func() bool {
		err := client.RESTClient().Delete().AbsPath(crd[0].path()).Param("dryRun", metav1.DryRunAll).
			Do(t.Context()).Error()
		return apierrors.IsForbidden(err) && suite.PolicyIn(err.Error()) == attachLock+"-kind"
	})
	orphan := parse(t, `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: orphan}
spec:
  failurePolicy: Fail
  paramKind: {apiVersion: csi-reclaimer.io/v1alpha1, kind: NeverServed}
  matchConstraints:
    resourceRules:
    - {apiGroups: [storage.k8s.io], apiVersions: [v1], operations: [CREATE], resources: [volumeattachments]}
  validations: [{expression: "params.spec.a == ''"}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: orphan}
spec: {policyName: orphan, validationActions: [Deny], paramRef: {selector: {}, parameterNotFoundAction: Allow}}`)
	removeAtEnd(t, orphan...)
	must(t, apply(t.Context(), orphan...))
	refused := func() bool {
		_, err := attach(t, "v", "n", metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err != nil
	}
	until(t, "a policy without its kind to refuse", refused)
	must(t, remove(t.Context(), orphan...))
	until(t, "the end of that", func() bool { return !refused() })
}
