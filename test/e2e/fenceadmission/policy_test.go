//go:build unix

package fenceadmission

import (
	"context"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	v1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/manifests"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/suite"
)

// The resources of the kinds.
var (
	fences    = v1alpha1.GroupVersion.WithResource("nodefences")
	policies  = v1alpha1.GroupVersion.WithResource("fencepolicies")
	templates = v1alpha1.GroupVersion.WithResource("nodefencetemplates")
)

// cluster is the control plane that all tests share; client is its administrator's.
var (
	cluster *controlplane.ControlPlane
	client  *kubernetes.Clientset
)

func TestMain(m *testing.M) {
	// The controller manager aggregates roles.
	os.Exit(suite.Suite{Options: controlplane.Options{Progress: os.Stderr}, Install: install}.Main(m))
}

func install(ctx context.Context, c *controlplane.ControlPlane, admin *kubernetes.Clientset) error {
	cluster, client = c, admin
	return manifests.Apply(ctx, c.Admin(), manifests.NodeFencing()...)
}

// as returns the client of a user, the administrator for "".
func as(t *testing.T, user string) dynamic.Interface {
	t.Helper()
	config := cluster.Admin()
	if user != "" {
		var err error
		config, err = cluster.ConfigFor(user)
		must(t, err)
	}
	config = rest.CopyConfig(config)
	config.WarningHandler = rest.NoWarnings{}
	c, err := dynamic.NewForConfig(config)
	must(t, err)
	return c
}

var must, until = suite.Must, suite.Until

// fields are the fields of an object or of a part of one.
type fields = map[string]any

// job is an agent that the schema takes.
func job() fields {
	return fields{"name": "power-off", "covers": "UntilUnfenced",
		"job": fields{"namespace": "node-fencing", "podTemplateName": "power-off"}}
}

// manual is another.
func manual() fields { return fields{"name": "by-hand", "covers": "UntilUnfenced", "manual": fields{}} }

// networkFence is another, which only others of its kind may follow.
func networkFence() fields {
	return fields{"name": "network", "covers": "Volumes",
		"networkFence": fields{"driver": "disk.csi.example.com", "networkFenceClassName": "disk"}}
}

// clustered is one of the volumes of one cluster.
func clustered(name, cluster string) fields {
	a := networkFence()
	a["name"], a["networkFence"].(fields)["volumeAttributes"] = name, fields{"clusterID": cluster}
	return a
}

// remediation is another.
func remediation() fields {
	return fields{"name": "reboot", "covers": "Reboot", "remediation": fields{"apiVersion": "example.com/v1",
		"kind": "RebootTemplate", "namespace": "node-fencing", "name": "reboot"}}
}

// with returns fields with others added or in place of its own. A nil value removes a field.
func with(base fields, others fields) fields {
	all := fields{}
	for _, from := range []fields{base, others} {
		for key, value := range from {
			if value == nil {
				delete(all, key)
			} else {
				all[key] = value
			}
		}
	}
	return all
}

func agents(all ...fields) []any {
	list := make([]any, len(all))
	for i, one := range all {
		list[i] = one
	}
	return list
}

// object returns an object of a kind.
func object(kind, name string, spec fields) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: fields{"spec": spec}}
	o.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(kind))
	o.SetName(name)
	return o
}

// fence returns a NodeFence that is accepted, with these fields of its spec.
func fence(name string, spec fields) *unstructured.Unstructured {
	return object("NodeFence", name, with(fields{"reason": "a test", "agents": agents(job())}, spec))
}

// create creates a NodeFence, which the test's end deletes.
func create(t *testing.T, o *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	admin := as(t, "").Resource(fences)
	made, err := admin.Create(t.Context(), o, metav1.CreateOptions{})
	must(t, err)
	t.Cleanup(func() { _ = admin.Delete(context.Background(), o.GetName(), metav1.DeleteOptions{}) })
	return made
}

const controlPlaneLabel = "node-role.kubernetes.io/control-plane"

// makeNode creates a Node.
func makeNode(t *testing.T, name string, labels map[string]string) {
	t.Helper()
	_, err := client.CoreV1().Nodes().Create(t.Context(), &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name,
		Labels: labels}}, metav1.CreateOptions{})
	must(t, err)
	t.Cleanup(func() { must(t, client.CoreV1().Nodes().Delete(context.Background(), name, metav1.DeleteOptions{})) })
}

// refusedBy reports whether an error is the refusal of a policy.
func refusedBy(err error, policy string) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "'"+policy+"'")
}

func TestControlPlaneNodesAreRefused(t *testing.T) {
	const policy, controller, worker = "csi-reclaimer-fence-control-plane", "controller", "worker"
	makeNode(t, controller, map[string]string{controlPlaneLabel: ""})
	makeNode(t, worker, nil)
	admin := as(t, "").Resource(fences)
	// The API server takes some time to see the policy, and the Node.
	until(t, "a fence to be refused", func() bool {
		_, err := admin.Create(t.Context(), fence(controller, nil), dryRun)
		return refusedBy(err, policy)
	})
	_, err := admin.Create(t.Context(), fence(controller, nil), dryRun)
	if !refusedBy(err, policy) || !strings.Contains(err.Error(), "spec.allowControlPlane") {
		t.Errorf("a fence of node %s: %v", controller, err)
	}
	if _, err := admin.Create(t.Context(), fence(controller, fields{"allowControlPlane": false}), dryRun); !refusedBy(err,
		policy) {
		t.Errorf("a fence of node %s, not allowed: %v", controller, err)
	}
	if _, err := admin.Create(t.Context(), fence(controller, fields{"allowControlPlane": true}), dryRun); err != nil {
		t.Errorf("a fence of node %s, allowed: %v", controller, err)
	}
	for _, name := range []string{worker, "unknown"} {
		if _, err := admin.Create(t.Context(), fence(name, nil), dryRun); err != nil {
			t.Errorf("a fence of node %s: %v", name, err)
		}
	}

	// A fence is ended wherever its node has moved to.
	create(t, fence(worker, nil))
	_, err = client.CoreV1().Nodes().Patch(t.Context(), worker, types.MergePatchType,
		[]byte(`{"metadata":{"labels":{"`+controlPlaneLabel+`":""}}}`), metav1.PatchOptions{})
	must(t, err)
	until(t, "a fence of the worker to be refused", func() bool {
		_, err := admin.Create(t.Context(), fence(worker, nil), dryRun)
		return refusedBy(err, policy)
	})
	if _, err := admin.Patch(t.Context(), worker, types.MergePatchType, patch(fields{"unfence": "Now"}),
		metav1.PatchOptions{}); err != nil {
		t.Errorf("end a fence of the control plane: %v", err)
	}
}

// bind grants a ClusterRole in the whole cluster to a user, and waits for that.
func bind(t *testing.T, role, user string) {
	t.Helper()
	bindings := client.RbacV1().ClusterRoleBindings()
	_, err := bindings.Create(t.Context(), &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: user},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, Name: user}}}, metav1.CreateOptions{})
	must(t, err)
	t.Cleanup(func() { must(t, bindings.Delete(context.Background(), user, metav1.DeleteOptions{})) })
	until(t, "user "+user+" to read NodeFences", func() bool {
		return may(t.Context(), t, user, "list", fences.Resource)
	})
}

// may reports whether RBAC allows a user a verb.
func may(ctx context.Context, t *testing.T, user, verb, resource string) bool {
	t.Helper()
	review, err := client.AuthorizationV1().SubjectAccessReviews().Create(ctx,
		&authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: user,
			ResourceAttributes: &authorizationv1.ResourceAttributes{Group: fences.Group, Version: fences.Version,
				Resource: resource, Verb: verb}}}, metav1.CreateOptions{})
	must(t, err)
	return review.Status.Allowed
}

// TestOnlyPeopleConfirm expects the policy to refuse confirmations by programs that fence nodes.
func TestOnlyPeopleConfirm(t *testing.T) {
	const policy, person, program = "csi-reclaimer-fence-confirm", "person", "program"
	bind(t, "csi-reclaimer-fencing-operator", person)
	bind(t, "csi-reclaimer-fencing-detector", program)
	of := func(user string) dynamic.ResourceInterface { return as(t, user).Resource(fences) }
	word := fields{"confirmation": "power is off", "confirmationUID": "of-the-fence"}
	until(t, "a confirmation to be refused", func() bool {
		_, err := of(program).Create(t.Context(), fence("by-program", word), dryRun)
		return refusedBy(err, policy)
	})
	for name, c := range map[string]struct {
		spec  fields
		words string
	}{
		"a confirmation": {word, "spec.confirmation vouches"},
		"an end at once": {fields{"unfence": "Now"}, "spec.unfence Now ends"},
		"abandoned":      {fields{"unfence": "Abandon"}, "spec.unfence Abandon ends"},
	} {
		if _, err := of(program).Create(t.Context(), fence("by-program", c.spec), dryRun); !refusedBy(err, policy) ||
			!strings.Contains(err.Error(), c.words) {
			t.Errorf("%s by a program: %v", name, err)
		}
		if _, err := of(person).Create(t.Context(), fence("by-person", c.spec), dryRun); err != nil {
			t.Errorf("%s by a person: %v", name, err)
		}
		// The same by a change.
		o := create(t, fence("changed", nil))
		if _, err := of(program).Patch(t.Context(), "changed", types.MergePatchType, patch(c.spec),
			metav1.PatchOptions{}); !refusedBy(err, policy) || !strings.Contains(err.Error(), c.words) {
			t.Errorf("%s by a program, later: %v", name, err)
		}
		_, err := of(person).Patch(t.Context(), "changed", types.MergePatchType, patch(c.spec), metav1.PatchOptions{})
		if err != nil {
			t.Errorf("%s by a person, later: %v", name, err)
		}
		// A program may send a person's confirmation again, and change other fields.
		o, err = of(program).Get(t.Context(), o.GetName(), metav1.GetOptions{})
		must(t, err)
		must(t, unstructured.SetNestedField(o.Object, "another", "spec", "reason"))
		if _, err := of(program).Update(t.Context(), o, metav1.UpdateOptions{}); err != nil {
			t.Errorf("a program changes the reason after %s: %v", name, err)
		}
		must(t, of(program).Delete(t.Context(), "changed", metav1.DeleteOptions{}))
	}
	// Nor does it make a person's word about another NodeFence one about this.
	create(t, fence("copied", word))
	own := patch(fields{"confirmationUID": "of-this"})
	_, err := of(program).Patch(t.Context(), "copied", types.MergePatchType, own, metav1.PatchOptions{})
	if !refusedBy(err, policy) || !strings.Contains(err.Error(), "spec.confirmation vouches") {
		t.Errorf("a copied confirmation by a program: %v", err)
	}
	_, err = of(person).Patch(t.Context(), "copied", types.MergePatchType, own, metav1.PatchOptions{})
	must(t, err)
	must(t, of(program).Delete(t.Context(), "copied", metav1.DeleteOptions{}))
	for name, spec := range map[string]fields{"no more": nil, "undone once released": {"unfence": "WhenReleased"},
		"nothing confirmed": {"confirmation": ""}} {
		if _, err := of(program).Create(t.Context(), fence("by-program", spec), dryRun); err != nil {
			t.Errorf("%s by a program: %v", name, err)
		}
	}
}

// TestOnlyPeopleAndVolumeGuardRemoveFinalizer expects the policy to keep the finalizer of a fence from programs that
// fence nodes, on NodeFences that are terminating and on others.
func TestOnlyPeopleAndVolumeGuardRemoveFinalizer(t *testing.T) {
	const policy, person, program, guard = "csi-reclaimer-fence-confirm", "keeper", "detector", "guard"
	bind(t, "csi-reclaimer-fencing-operator", person)
	bind(t, "csi-reclaimer-fencing-detector", program)
	must(t, manifests.Apply(t.Context(), cluster.Admin(), "rbac-volume-guard-node-fencing.yaml"))
	bind(t, "volume-guard-node-fencing", guard)
	of := func(user string) dynamic.ResourceInterface { return as(t, user).Resource(fences) }
	finalizers := func(all string) []byte { return []byte(`{"metadata":{"finalizers":` + all + `}}`) }
	const kept = `["example.com/other","csi-reclaimer.io/fence"]`
	change := func(user, name, to string) error {
		_, err := of(user).Patch(t.Context(), name, types.MergePatchType, finalizers(to), metav1.PatchOptions{})
		return err
	}
	for _, terminating := range []bool{false, true} {
		for i, remover := range []string{person, guard} {
			name := "kept-" + strconv.FormatBool(terminating) + strconv.Itoa(i)
			create(t, fence(name, nil))
			must(t, change("", name, kept))
			if terminating {
				must(t, of(program).Delete(t.Context(), name, metav1.DeleteOptions{}))
			}
			until(t, "the removal to be refused", func() bool { return refusedBy(change(program, name, "null"), policy) })
			for _, left := range []string{"null", `["example.com/other"]`} {
				if err := change(program, name, left); !refusedBy(err, policy) || !strings.Contains(err.Error(), "finalizer") {
					t.Errorf("a program leaves %s of %s: %v", left, name, err)
				}
			}
			o, err := of(program).Get(t.Context(), name, metav1.GetOptions{})
			must(t, err)
			o.SetFinalizers(nil)
			if _, err := of(program).Update(t.Context(), o, metav1.UpdateOptions{}); !refusedBy(err, policy) {
				t.Errorf("a program updates %s: %v", name, err)
			}
			if o, err = of("").UpdateStatus(t.Context(), o, metav1.UpdateOptions{}); err != nil || len(o.GetFinalizers()) != 2 {
				t.Errorf("the status of %s is written: finalizers %q, %v", name, o.GetFinalizers(), err)
			}
			// The finalizers of other programs are theirs.
			if err := change(program, name, `["csi-reclaimer.io/fence"]`); err != nil {
				t.Errorf("a program leaves the finalizer of %s: %v", name, err)
			}
			if err := change(remover, name, "null"); err != nil {
				t.Errorf("%s removes the finalizer of %s: %v", remover, name, err)
			}
		}
	}
}

func TestRoles(t *testing.T) {
	reads := []string{"get", "list", "watch"}
	writes := []string{"create", "update", "patch", "delete"}
	for role, c := range map[string]struct{ fences, policies, templates []string }{
		"view":                           {reads, reads, reads},
		"edit":                           {reads, reads, reads},
		"admin":                          {reads, reads, reads},
		"csi-reclaimer-fencing-operator": {slices.Concat([]string{"confirm"}, reads, writes), reads, reads},
		"csi-reclaimer-fencing-detector": {slices.Concat(reads, writes), nil, reads},
	} {
		user := "has-" + role
		bind(t, role, user)
		for resource, allowed := range map[string][]string{fences.Resource: c.fences, policies.Resource: c.policies,
			templates.Resource: c.templates} {
			for _, verb := range slices.Concat([]string{"confirm", "deletecollection"}, reads, writes) {
				if got, want := may(t.Context(), t, user, verb, resource), slices.Contains(allowed, verb); got != want {
					t.Errorf("role %s allows %s of %s: %v, want %v", role, verb, resource, got, want)
				}
			}
			for _, sub := range []string{"/status", "/finalizers"} {
				if may(t.Context(), t, user, "update", resource+sub) || may(t.Context(), t, user, "patch", resource+sub) {
					t.Errorf("role %s allows writes of %s", role, resource+sub)
				}
			}
		}
	}
}
