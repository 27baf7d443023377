//go:build unix

// Package subject runs the programs that a measurement compares, and reads their use of resources.
package subject

import (
	"context"
	"slices"
	"strings"

	"github.com/csi-reclaimer/csi-reclaimer/test/bench/peer"
	"github.com/csi-reclaimer/csi-reclaimer/test/bench/report"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/program"
)

// Subject is a program that is measured. It provisions and deletes, as it does by default.
type Subject struct {
	// Column is the one of the report that its values stand in.
	Column string
	// args are its flags beside address and kubeconfig.
	args []string
}

// All returns all compared subjects.
func All() []Subject { return slices.Concat(Fast(), Slow()) }

// Fast returns the subjects whose client has no limit. They get the full load.
func Fast() []Subject { return []Subject{Ours(), Unthrottled(), UnthrottledV13()} }

// Slow are the subjects that the limit of their client holds up. Their load is small.
func Slow() []Subject { return []Subject{Reference(), ReferenceV13()} }

// Ours is csi-reclaimer at its defaults, but for its log.
func Ours(args ...string) Subject { return Subject{report.Ours, append([]string{"-v=0"}, args...)} }

// Reference is the controller of v10 of the library at the defaults of client-go.
func Reference() Subject { return Subject{report.Reference, atDefaults()} }

// Unthrottled is the controller of v10 of the library without a limit on its client, and with 100 threads.
func Unthrottled() Subject { return Subject{report.Unthrottled, withoutLimit()} }

// ReferenceV13 is Reference with v13 of the library.
func ReferenceV13() Subject { return Subject{report.ReferenceV13, atDefaults()} }

// UnthrottledV13 is Unthrottled with v13 of the library.
func UnthrottledV13() Subject { return Subject{report.UnthrottledV13, withoutLimit()} }

func atDefaults() []string {
	return []string{"--provision", "--kube-api-qps=5", "--kube-api-burst=10", "--retry-interval-start=1s"}
}

func withoutLimit() []string {
	return []string{"--provision", "--kube-api-qps=-1", "--worker-threads=100", "--retry-interval-start=1s"}
}

// V13 reports whether it runs v13 of the library.
func (s Subject) V13() bool {
	return s.Column == report.ReferenceV13 || s.Column == report.UnthrottledV13
}

// With returns the subject with further flags, which win over those it has.
func (s Subject) With(args ...string) Subject {
	s.args = slices.Concat(s.args, args)
	return s
}

// WithoutProvisioning returns the subject without its provisioning.
func (s Subject) WithoutProvisioning() Subject { return s.With("--provision=false") }

// Account is the name of its service account.
func (s Subject) Account() string { return strings.ReplaceAll(s.Column, "_", "-") }

// User is the account's name in the audit log.
func (s Subject) User(namespace string) string {
	return "system:serviceaccount:" + namespace + ":" + s.Account()
}

// Running is a subject at work. Its methods may be called from any goroutine.
type Running interface {
	PID() int
	Stop() error
	LogTail(lines int) string
}

// Options say where a subject works.
type Options struct {
	// Sidecar, Peer and PeerV13 are the compiled programs. Required.
	Sidecar, Peer, PeerV13 string
	// Address is the CSI driver's socket. Required.
	Address string
	// Kubeconfig is the path of the subject's kubeconfig file. Required.
	Kubeconfig string
	// Namespace is where ours keeps its Leases. Required.
	Namespace string
}

// Start starts the subject and returns when it has been executed. Only its work shows that it is ready. When ctx has
// ended, Stop kills it.
func (s Subject) Start(ctx context.Context, o Options) (Running, error) {
	if s.Column != report.Ours {
		binary := o.Peer
		if s.V13() {
			binary = o.PeerV13
		}
		return peer.Start(ctx, peer.Options{
			Binary: binary, Address: o.Address, Kubeconfig: o.Kubeconfig, AddFinalizer: true, Args: s.args,
		})
	}
	car, err := program.StartSidecar(ctx, program.SidecarOptions{
		// The Leases of the in-flight log are there, too.
		Binary: o.Sidecar, Address: o.Address, Kubeconfig: o.Kubeconfig,
		Args: append([]string{"--leader-election-namespace=" + o.Namespace}, s.args...),
	})
	return impatient{car, ctx}, err
}

// impatient is ours, which is killed once ctx has ended: asked to end, it would wait for its calls in flight.
type impatient struct {
	*program.Program
	ctx context.Context
}

func (i impatient) Stop() error {
	if i.ctx.Err() != nil {
		i.Kill()
	}
	return i.Program.Stop()
}

// Profile returns a profile (net/http/pprof) of a subject that was started with --enable-pprof, and nil for other
// programs.
func Profile(ctx context.Context, running Running, name string) ([]byte, error) {
	car, ours := running.(impatient)
	if !ours {
		return nil, nil
	}
	body, err := car.Get(ctx, "/debug/pprof/"+name)
	return []byte(body), err
}
