//go:build unix

// Package peer runs another provisioner beside csi-reclaimer: a program around the ProvisionController of
// sig-storage-lib-external-provisioner, the base of the stock external-provisioner. One program has v10, which
// csi-reclaimer requires, and another v13, which external-provisioner 6.3 and 6.4 require in their go.mod.
//
// The library treats PVs as follows, read from v10.0.1 and tested in test/e2e:
//   - It answers for PVs that it provisioned (annotation pv.kubernetes.io/provisioned-by), and
//     for static ones of its driver.
//   - With AddFinalizer it puts the finalizer of KEP-2644 on Bound PVs with policy Delete, and
//     deletes the volumes of Released ones, terminating or not.
//   - Without, it removes that finalizer from every PV it answers for, whatever the PV's state, and
//     deletes the volumes of Released PVs that are not terminating. It deletes the PV next.
//   - For a claim that gets its volume at the first try (--provision) it writes the PV, with its
//     finalizer, and the Events Provisioning and ProvisioningSucceeded; nothing else.
//   - It reconciles a PV when the PV changes, and at all of them after each resync period.
package peer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/process"
)

// stopGrace is more than the peer takes to end.
const stopGrace = time.Minute

// Options say how to run the peer.
type Options struct {
	// Address is the CSI driver's socket. Required.
	Address string
	// Kubeconfig is the path of a kubeconfig file. Required.
	Kubeconfig string
	// AddFinalizer makes the peer honour the reclaim policy, as the stock provisioner does from 5.0 on.
	AddFinalizer bool
	// Args are further flags.
	Args []string
	// Binary is the program. Default: the result of Build.
	Binary string
	// Progress receives the output of the go command. Default: none.
	Progress io.Writer
}

// Peer is a provisioner at work.
type Peer struct {
	process *process.Process
}

// Build compiles the peer with v10 of the library and returns the path of the binary.
func Build(ctx context.Context, progress io.Writer) (string, error) {
	return process.Build(ctx, "./test/bench/peer/cmd/peer", progress)
}

// FolderV13 is where the module of the peer with v13 is, from the root.
const FolderV13 = "test/bench/peer/cmd/peer-v13"

// BuildV13 compiles the peer with v13 of the library and returns the path of the binary.
func BuildV13(ctx context.Context, progress io.Writer) (string, error) {
	root, err := process.ModuleRoot()
	if err != nil {
		return "", fmt.Errorf("build the peer: %w", err)
	}
	return process.BuildIn(ctx, filepath.Join(root, filepath.FromSlash(FolderV13)),
		"github.com/csi-reclaimer/csi-reclaimer/"+FolderV13, progress)
}

// Start builds and starts a peer and returns when it has begun to watch. It runs until Stop, or
// until the calling program ends.
func Start(ctx context.Context, o Options) (*Peer, error) {
	if o.Binary == "" {
		var err error
		if o.Binary, err = Build(ctx, o.Progress); err != nil {
			return nil, fmt.Errorf("start the peer: %w", err)
		}
	}
	args := append([]string{
		"--csi-address=" + o.Address, "--kubeconfig=" + o.Kubeconfig, fmt.Sprintf("--add-finalizer=%v", o.AddFinalizer),
	}, o.Args...)
	p, err := process.Start(process.Command{Name: "peer", Path: o.Binary, Args: args})
	if err != nil {
		return nil, fmt.Errorf("start the peer: %w", err)
	}
	peer := &Peer{process: p}
	if err := p.WaitLog(ctx, "peer: at work"); err != nil {
		return nil, errors.Join(fmt.Errorf("start the peer: %w", err), peer.Stop())
	}
	return peer, nil
}

// Stop ends the peer and waits for its end.
func (p *Peer) Stop() error {
	err := p.process.Stop(stopGrace)
	p.process.Close()
	return err
}

// PID returns the process id.
func (p *Peer) PID() int { return p.process.PID() }

// LogTail returns the last lines of its log.
func (p *Peer) LogTail(lines int) string { return p.process.LogTail(lines) }

// Grant grants the service account the permissions of the stock provisioner that this program needs. The cluster role
// and its binding are named by namespace and account.
func Grant(ctx context.Context, client kubernetes.Interface, namespace, account string) error {
	rule := func(group, resource string, verbs ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, Verbs: verbs}
	}
	name := namespace + "-" + account
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: []rbacv1.PolicyRule{
		rule("", "persistentvolumes", "get", "list", "watch", "create", "patch", "delete"),
		rule("", "persistentvolumeclaims", "get", "list", "watch", "update"),
		rule("storage.k8s.io", "storageclasses", "get", "list", "watch"),
		rule("", "nodes", "get", "list", "watch"),
		rule("", "events", "list", "watch", "create", "update", "patch"),
		rule("coordination.k8s.io", "leases", "get", "create", "update"),
	}}
	if _, err := client.RbacV1().ClusterRoles().Create(ctx, role,
		metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("make cluster role: %w", err)
	}
	_, err := client.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: account}},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("bind cluster role: %w", err)
	}
	return nil
}
