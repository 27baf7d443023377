//go:build unix

package deploy

import (
	"context"
	"testing"

	"k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	fencing "github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/client"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
	shipped "github.com/csi-reclaimer/csi-reclaimer/test/framework/manifests"
)

// The pages' node and FencePolicy.
const (
	docsNode   = "worker-2"
	docsPolicy = "workers"
)

// addFencing adds the pages' commands for fences. No volume-guard works on the fences.
func (s *shell) addFencing(plays map[string]play) {
	names := []string{"NAME", docsNode, "POLICY", docsPolicy}
	add := func(command, also, want string, scene func(*testing.T)) {
		plays["kubectl "+command] = play{scene: scene, with: names, also: also, want: want}
	}
	for _, file := range []string{"crd", "policy", "roles"} {
		add("apply -f deploy/manifests/node-fencing-"+file+".yaml", "--dry-run=server", "(server dry run)", nil)
	}
	add("delete -f deploy/manifests/node-fencing-policy.yaml -f deploy/manifests/node-fencing-roles.yaml",
		"--ignore-not-found", "", nil)
	add("delete -f deploy/manifests/node-fencing-crd.yaml", "--dry-run=server", "deleted", s.makeUnfenced)
	add("create clusterrolebinding fencing --clusterrole=csi-reclaimer-fencing-operator --group=GROUP",
		"--dry-run=server", "created", nil)

	add("reclaim explain node/NAME", "", "Node "+docsNode, s.makeFence)
	add(`reclaim fence NAME --reason="kernel hangs" --agents-of=POLICY --dry-run`, "", docsNode, s.makeUnfenced)
	add(`reclaim fence NAME --reason="kernel hangs" --agents-of=POLICY`, "--yes", docsNode, s.makeUnfenced)
	add(`reclaim fence NAME --manual --reason="mainboard broken"`, "--yes", docsNode, s.makeUnfenced)
	add(`reclaim confirm node/NAME --because="both power cables are out"`, "--yes", docsNode, s.makeFence)
	add(`reclaim confirm node/NAME --because="switched off at the PDU"`, "--yes", docsNode, s.makeFence)
	add("reclaim confirm", "node/"+docsNode+" --because=off --yes", docsNode, s.makeFence)
	add("reclaim unfence", docsNode+" --yes", docsNode, s.makeFence)
	add("reclaim unfence NAME", "--yes", docsNode, s.makeFence)
	add("reclaim unfence NAME --abandon", "--yes", docsNode, s.makeFence)
	add("reclaim unfence NAME --when-released", "--yes", docsNode, s.makeFence)
	add("reclaim fences", "", docsNode, s.makeFence)
	add("reclaim explain node/worker-2", "", docsNode, s.makeFence)
	add("reclaim fence", docsNode+" --manual --reason=test --yes", docsNode, s.makeUnfenced)
	add("reclaim fence --manual", docsNode+" --reason=test --yes", docsNode, s.makeUnfenced)
	add(`reclaim confirm node/worker-2 --because="both power cables are out"`, "--yes", docsNode, s.makeFence)
	for _, flag := range []string{"", " --when-released", " --abandon"} {
		add("reclaim unfence worker-2"+flag, "--yes", docsNode, s.makeFence)
	}
	plays["kubectl reclaim fences --watch"] = play{why: "it does not end"}
	plays[`kubectl reclaim fence worker-2 --reason="kernel hangs" --wait`] = play{why: "no agent works here"}

	add("describe nodefence NAME", "", "a test", s.makeFence)
	add("get nodefences", "", docsNode, s.makeFence)
	add("get fencepolicies", "", docsPolicy, s.makeUnfenced)
	plays["kubectl describe fencepolicy NAME"] = play{scene: s.makeUnfenced, with: []string{"NAME", docsPolicy},
		want: docsPolicy}
	plays[`kubectl patch fencepolicy NAME --type=merge -p '{"spec":{"dryRun":false}}'`] = play{scene: s.makeUnfenced,
		with: []string{"NAME", docsPolicy}, want: "patched"}
	add("delete fencepolicies --all", "", "deleted", s.makeUnfenced)
	add("get jobs -n node-fencing -l csi-reclaimer.io/fence", "", "", nil)
	plays["kubectl get jobs -n NAMESPACE -l csi-reclaimer.io/fence"] = play{with: []string{"NAMESPACE", docsHome}}
}

// makeUnfenced makes the node, which is unreachable, and the policy, which is a dry run.
func (s *shell) makeUnfenced(t *testing.T) {
	t.Helper()
	ctx := patiently(t)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(shipped.Apply(ctx, cluster.Admin(), shipped.NodeFencingCRD))
	fences, err := fencing.New(cluster.Admin())
	must(err)
	makeAway(ctx, t, docsNode)
	_, err = fences.Policies.Create(ctx, &v1alpha1.FencePolicy{ObjectMeta: metav1.ObjectMeta{Name: docsPolicy},
		Spec: v1alpha1.FencePolicySpec{DryRun: true, Agents: byHand()}}, metav1.CreateOptions{})
	must(err)
	forget(t, func(ctx context.Context) error {
		for _, deleted := range []error{
			fences.Policies.Delete(ctx, docsPolicy, metav1.DeleteOptions{}),
			fences.Fences.Delete(ctx, docsNode, metav1.DeleteOptions{}),
		} {
			if deleted != nil && !apierrors.IsNotFound(deleted) {
				return deleted
			}
		}
		return nil
	})
}

// makeAway makes a node that is unreachable.
func makeAway(ctx context.Context, t *testing.T, name string) {
	t.Helper()
	nodes := client.CoreV1().Nodes()
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if _, err := nodes.Create(ctx, node, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := nodes.Delete(context.WithoutCancel(ctx), name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	// Controllers write to the Node as well, which an update would collide with.
	if _, err := nodes.Patch(ctx, name, types.StrategicMergePatchType,
		[]byte(`{"status":{"conditions":[{"type":"Ready","status":"Unknown","reason":"NodeStatusUnknown"}]}}`),
		metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
}

func byHand() []v1alpha1.Agent {
	return []v1alpha1.Agent{{Name: "by-hand", Covers: v1alpha1.CoversUntilUnfenced, Manual: &v1alpha1.ManualAgent{}}}
}

// makeFence also creates a fence of the node.
func (s *shell) makeFence(t *testing.T) {
	t.Helper()
	s.makeUnfenced(t)
	fences, err := fencing.New(cluster.Admin())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fences.Fences.Create(patiently(t), &v1alpha1.NodeFence{ObjectMeta: metav1.ObjectMeta{Name: docsNode},
		Spec: v1alpha1.NodeFenceSpec{Reason: "a test", Agents: byHand()}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}
