//go:build unix

package session

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/manifests"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/program"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/rbac"
)

const (
	volumeGuard = "volume-guard"
	// guardNamespace is where the shipped policies expect volume-guard.
	guardNamespace = "csi-reclaimer"
	// playedNodes is how many nodes the pods are on: a played node works on one pod at a time.
	playedNodes = 10
)

// InstallGuard installs controllers of volume-guard as an operator does, and returns the kubeconfig of its account.
func (env *Environment) InstallGuard(ctx context.Context, controllers, files []string) (kubeconfig string, err error) {
	client := env.Users[0]
	_, err = client.CoreV1().Namespaces().Create(ctx, &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: guardNamespace}},
		metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	if err := manifests.Apply(ctx, env.Cluster.Admin(), files...); err != nil {
		return "", err
	}
	if _, err := rbac.GrantGuardController(ctx, client, guardNamespace, volumeGuard, controllers...); err != nil {
		return "", err
	}
	account, err := env.Cluster.ServiceAccount(ctx, guardNamespace, volumeGuard)
	if err != nil {
		return "", err
	}
	return env.Cluster.Kubeconfig(account)
}

// StartGuard starts volume-guard with these controllers.
func StartGuard(ctx context.Context, kubeconfig string, controllers []string) (*program.Program, error) {
	guard, err := program.Start(ctx, program.Options{Name: volumeGuard, Args: []string{"--kubeconfig=" + kubeconfig,
		"--controllers=" + strings.Join(controllers, ",") + ",-intree", "--leader-election=false"}})
	if err != nil {
		return nil, err
	}
	if err := guard.WaitReady(ctx); err != nil {
		return nil, errors.Join(err, guard.Stop())
	}
	return guard, nil
}

// GuardCalls counts volume-guard's requests for some resources since a time, without watches.
func (env *Environment) GuardCalls(ctx context.Context, since time.Time, resources ...string) (c guardCalls,
	err error) {
	if err := env.AuditComplete(ctx); err != nil {
		return c, err
	}
	user := "system:serviceaccount:" + guardNamespace + ":" + volumeGuard
	calls, err := env.Cluster.AuditEventsOf(user, func(e controlplane.AuditEvent) bool {
		return e.Received.After(since) && slices.Contains(resources, e.Resource) && e.Verb != "watch"
	})
	for _, call := range calls {
		switch call.Verb {
		case "get":
			c.Reads++
		case "list":
			c.Lists++
		default:
			c.Writes++
		}
	}
	return c, err
}

// guardCalls are numbers of calls.
type guardCalls struct{ Reads, Lists, Writes int }

// LockingControllers returns the controllers of volume-guard that single-node needs.
func LockingControllers() []string { return []string{"pod-safety", "single-node"} }

// LockingManifests returns the manifests of these controllers.
func LockingManifests(env *Environment) []string {
	v := env.Cluster.Version()
	return slices.Concat(manifests.PodSafety(v), manifests.SingleNode(v))
}

// WaitPolicies returns once new pods are held and have the gate, or neither. In between, the API server refuses them.
func (env *Environment) WaitPolicies(ctx context.Context, namespace string, want bool) error {
	return Until(ctx, 50*time.Millisecond, "the policies are in force", func() (bool, error) {
		probe, err := env.Users[0].CoreV1().Pods(namespace).Create(ctx, PodForScheduler("probe"),
			metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if apierrors.IsForbidden(err) {
			return false, nil
		}
		return err == nil && want == (len(probe.Spec.SchedulingGates) > 0) && want == (len(probe.Finalizers) > 0), err
	})
}
