package main

import (
	"errors"
	"fmt"
	"strings"
	"time"

	cliflag "k8s.io/component-base/cli/flag"

	"github.com/csi-reclaimer/csi-reclaimer/cmd/internal/cluster"
	"github.com/csi-reclaimer/csi-reclaimer/cmd/internal/health"
	"github.com/csi-reclaimer/csi-reclaimer/cmd/internal/leader"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/admission"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/intree"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/inuse"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/inuse/pvc"
)

// options is what the command line says.
type options struct {
	cluster cluster.Options

	controllers selection
	dryRun      bool
	// releaseFinalizers: take what we put on objects off, and end.
	releaseFinalizers bool
	// releaseDrivers: those of which the same is done with what csi-reclaimer and the admission put on.
	releaseDrivers []string
	workers        int
	retryStart     time.Duration
	retryMax       time.Duration

	terminatedPods string
	patience       time.Duration

	webhooks webhookOptions

	leader leader.Options
	http   health.Options
	grace  time.Duration
}

// Flags returns the flags that set o, in the groups that --help shows.
func (o *options) Flags() cliflag.NamedFlagSets {
	var groups cliflag.NamedFlagSets
	o.cluster.Flags(groups.FlagSet("Kubernetes"),
		"Calls a second to the API server, of each controller for itself. Watches, the Lease and Events (10 a second) are not in it. 0 sets no limit of our own: the number of workers bounds the calls at once, and the API server's 429 answers with Retry-After are obeyed.")

	fs := groups.FlagSet("Controllers")
	fs.StringSliceVar((*[]string)(&o.controllers), "controllers", []string{"*"},
		"What to run, as a list: * is all that is on by default, NAME one more, -NAME one less. "+
			"On by default: "+strings.Join(onByDefault(), ", ")+". Off by default: "+strings.Join(offByDefault(), ", ")+".")
	fs.BoolVar(&o.dryRun, "dry-run", false,
		"Decide and report, in the log and the metrics, but write nothing (no Events and no Lease either). For a first look at a cluster.")
	fs.BoolVar(&o.releaseFinalizers, "release-finalizers", false,
		"Take every finalizer that the --controllers put on off all objects of the cluster, print how many, and exit. Nothing is deleted. Those of pvc-protection and pv-protection go only if nobody else is seen to manage them within --protection-patience. The first step of removing volume-guard: replicas that run are stopped by taking their Lease, which keeps them from beginning anew for ten minutes. Without --leader-election stop them before.")
	fs.StringSliceVar(&o.releaseDrivers, "release-drivers", nil,
		"CSI drivers whose PVs --release-finalizers releases from the finalizers of csi-reclaimer too, or * for all that are listed. It first removes the drivers from the MutatingAdmissionPolicies "+admission.PolicyName+" and "+admission.CompanionPolicyName+" and the MutatingWebhookConfiguration "+admission.WebhooksName+". Stop their csi-reclaimer before.")
	fs.IntVar(&o.workers, "worker-threads", 10,
		"How many objects each controller works on at once.")
	fs.DurationVar(&o.retryStart, "retry-interval-start", time.Second,
		"Delay after the first failure. It doubles with each failure, up to --retry-interval-max.")
	fs.DurationVar(&o.retryMax, "retry-interval-max", 5*time.Minute,
		"Longest delay after a failure.")

	fs = groups.FlagSet("Protection")
	fs.StringVar(&o.terminatedPods, "terminated-pods", pvc.ReleaseTerminated.String(),
		"Whether pods that have ended (Succeeded or Failed) keep their claims from being deleted. release: they do not. hold: until the pod itself is deleted, as kube-controller-manager has it; a pod that is Failed because its node was lost may still run there.")
	fs.DurationVar(&o.patience, "protection-patience", 30*time.Second,
		"How long an object must need what Kubernetes' own protection controllers do in moments until they count as off. Once after each start, and after each time that they were seen at work.")

	o.webhooks.flags(groups.FlagSet("Webhooks"))
	o.leader.On = true // two at once anywhere in the cluster are never wanted
	o.leader.Flags(groups.FlagSet("Leader election"), "the Lease "+name+". Webhooks answer on every replica.", ", also of what the webhooks need")

	fs = groups.FlagSet("Health and metrics")
	o.http.Flags(fs)
	fs.DurationVar(&o.grace, "shutdown-grace", 15*time.Second,
		"How long calls in hand may take to end after SIGTERM before they are cut off. Keep it below the pod's terminationGracePeriodSeconds.")
	return groups
}

// intreeConfig is what the command line says to pkg/intree.
func (o *options) intreeConfig() intree.Config {
	return intree.Config{DryRun: o.dryRun, Workers: o.workers, RetryStart: o.retryStart, RetryMax: o.retryMax}
}

// protectConfig is what it says to pkg/inuse.
func (o *options) protectConfig() inuse.Config {
	return inuse.Config{
		Mode: inuse.ModeFull, Patience: o.patience,
		DryRun: o.dryRun, Workers: o.workers, RetryStart: o.retryStart, RetryMax: o.retryMax,
	}
}

// claimConfig is what it says to pkg/inuse/pvc.
func (o *options) claimConfig() pvc.Config {
	ended, _ := pvc.ParseTerminatedPods(o.terminatedPods) // Validate has seen the error
	return pvc.Config{Config: o.protectConfig(), TerminatedPods: ended}
}

// Validate returns every setting that is wrong.
func (o *options) Validate() error {
	wrong := []error{o.controllers.validate(), o.cluster.Validate(), o.leader.Validate(), o.http.Validate()}
	add := func(bad bool, format string, args ...any) {
		if bad {
			wrong = append(wrong, fmt.Errorf(format, args...))
		}
	}
	add(o.controllers.none() && o.webhooks.address == "", "--controllers=%s: nothing is to run", strings.Join(o.controllers, ","))
	add(len(o.releaseDrivers) > 0 && !o.releaseFinalizers, "--release-drivers: needs --release-finalizers")
	add(o.releaseFinalizers && o.dryRun, "--release-finalizers: a dry run takes nothing off")
	_, err := pvc.ParseTerminatedPods(o.terminatedPods)
	add(err != nil, "--terminated-pods=%s: must be release or hold", o.terminatedPods)
	add(o.workers < 1, "--worker-threads=%d: must be at least 1", o.workers)
	add(o.retryStart <= 0, "--retry-interval-start=%v: must be positive", o.retryStart)
	add(o.retryMax < o.retryStart, "--retry-interval-max=%v: must not be below --retry-interval-start=%v", o.retryMax, o.retryStart)
	add(o.patience <= 0, "--protection-patience=%v: must be positive", o.patience)
	add(o.grace < 0, "--shutdown-grace=%v: must not be negative", o.grace)
	return errors.Join(wrong...)
}
