package main

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/tools/record"
	cliflag "k8s.io/component-base/cli/flag"

	"github.com/csi-reclaimer/csi-reclaimer/cmd/internal/app"
	"github.com/csi-reclaimer/csi-reclaimer/cmd/internal/health"
	"github.com/csi-reclaimer/csi-reclaimer/cmd/internal/leader"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/admission"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/controllers"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/fencing"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/intree"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/inuse"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/inuse/pvc"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/podsafety"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/singlenode"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/statefulset"
)

type options struct {
	cluster app.ClusterOptions

	controllers selection
	dryRun      bool
	// releaseFinalizers removes the finalizers that the controllers added, and exits.
	releaseFinalizers bool
	// releaseDrivers are the drivers whose csi-reclaimer finalizers are removed as well.
	releaseDrivers []string
	workers        int
	retryStart     time.Duration
	retryMax       time.Duration

	terminatedPods string
	patience       time.Duration

	podSafety podSafetyOptions

	statefulSet statefulSetOptions

	nodeFencing nodeFencingOptions

	webhooks webhookOptions

	leader leader.Options
	http   health.Options
	web    webOptions
	grace  time.Duration
}

// Flags returns the flags that set o, in the groups of --help.
func (o *options) Flags() cliflag.NamedFlagSets {
	var groups cliflag.NamedFlagSets
	o.cluster.Flags(groups.FlagSet("Kubernetes"),
		"Requests per second to the API server, for each controller separately. Watches, the Lease and Events (10 per "+
			"second) are not limited by it. 0: no client-side limit; the number of workers bounds the concurrent requests, "+
			"and volume-guard obeys Retry-After of the API server's 429 responses.")

	fs := groups.FlagSet("Controllers")
	fs.StringSliceVar((*[]string)(&o.controllers), "controllers", []string{"*"},
		"Controllers to run, as a list: * for all that are on by default, NAME to add one, -NAME to leave one out. "+
			"On by default: "+strings.Join(onByDefault(), ", ")+". Off by default: "+strings.Join(offByDefault(), ", ")+".")
	fs.BoolVar(&o.dryRun, "dry-run", false,
		"Decide, and report in the log and the metrics, but write nothing to the API server (neither Events nor a Lease).")
	fs.BoolVar(&o.releaseFinalizers, "release-finalizers", false,
		"Remove every finalizer, and from claims of StatefulSets every owner reference and annotation, that the "+
			"--controllers added, from all objects of the cluster, print how many, and exit. No volume is deleted. Finalizers "+
			"of pvc-protection and pv-protection are removed only if no other controller is observed to manage them within "+
			"--protection-patience. The finalizers of pod-safety are removed whether the processes of the pod run or not, "+
			"after the admission policy and webhook that add them. The scheduling gates and locks of single-node are removed "+
			"whether another pod uses the claim or not, after the admission that adds the gate; the command names pods that "+
			"were waiting for a pod that may still be running. node-fencing removes its taint from Nodes, too, and undoes "+
			"nothing that agents did. The first step of removing volume-guard: it takes the Lease, which stops running "+
			"replicas and keeps them from starting again for ten minutes. Outside of a pod, set "+
			"--leader-election-namespace. Without --leader-election, stop them before.")
	fs.StringSliceVar(&o.releaseDrivers, "release-drivers", nil,
		"CSI drivers from whose PVs --release-finalizers removes the finalizers of csi-reclaimer, too, or * for all that "+
			"are listed. It first removes the drivers from the MutatingAdmissionPolicies "+admission.PolicyName+
			" and "+admission.CompanionPolicyName+" and the MutatingWebhookConfiguration "+admission.WebhooksName+
			". Stop their csi-reclaimer before.")
	fs.IntVar(&o.workers, "worker-threads", 10,
		"How many objects each controller works on concurrently.")
	fs.DurationVar(&o.retryStart, "retry-interval-start", time.Second,
		"Delay after the first failure. It doubles with each failure, up to --retry-interval-max.")
	fs.DurationVar(&o.retryMax, "retry-interval-max", 5*time.Minute,
		"Longest delay after a failure.")

	fs = groups.FlagSet("Protection")
	fs.StringVar(&o.terminatedPods, "terminated-pods", pvc.ReleaseTerminated.String(),
		"Whether terminated pods (Succeeded or Failed) keep their claims from being deleted. release: they do not. hold: "+
			"until the pod itself is deleted, as in kube-controller-manager; a pod that is Failed because its node was lost "+
			"may still run there.")
	fs.DurationVar(&o.patience, "protection-patience", 30*time.Second,
		"How long Kubernetes' own protection controllers must not act on an object that needs it before they count as "+
			"off. It applies after each start, and each time that they were observed to act.")

	o.podSafety.flags(groups.FlagSet("Pod safety"))
	o.statefulSet.flags(groups.FlagSet("Claims of StatefulSets"))
	o.nodeFencing.flags(groups.FlagSet("Node fencing"))
	o.webhooks.flags(groups.FlagSet("Webhooks"))
	o.leader.On = true // two replicas would write the same objects
	o.leader.Flags(groups.FlagSet("Leader election"), "the Lease "+name+". Webhooks answer on every replica.",
		" and of the objects of the webhooks")

	fs = groups.FlagSet("Health and metrics")
	o.http.Flags(fs)
	o.web.flags(fs)
	fs.DurationVar(&o.grace, "shutdown-grace", 15*time.Second,
		"How long calls in progress may take after SIGTERM before they are canceled. Keep it below the pod's "+
			"terminationGracePeriodSeconds.")
	return groups
}

// settings returns the settings that each controller has.
func (o *options) settings(events record.EventRecorder, metrics prometheus.Registerer) controllers.Settings {
	return controllers.Settings{
		DryRun: o.dryRun, Workers: o.workers, RetryStart: o.retryStart, RetryMax: o.retryMax,
		Events: events, Metrics: metrics, Watches: kube.NewWatches(),
	}
}

func (o *options) intreeConfig(s controllers.Settings) intree.Config {
	return intree.Config{Settings: s}
}

func (o *options) protectConfig(s controllers.Settings) inuse.Config {
	return inuse.Config{Settings: s, Mode: inuse.ModeFull, Patience: o.patience}
}

func (o *options) claimConfig(s controllers.Settings) pvc.Config {
	ended, _ := pvc.ParseTerminatedPods(o.terminatedPods) // Validate has reported the error
	return pvc.Config{Config: o.protectConfig(s), TerminatedPods: ended}
}

func (o *options) podSafetyConfig(s controllers.Settings) podsafety.Config {
	return podsafety.Config{
		Settings: s, UnmountGrace: o.podSafety.unmountGrace, DeleteOrphans: o.podSafety.deleteOrphans,
		VolumeLocks: o.podSafety.volumeLocks, NodeCondition: o.podSafety.nodeCondition,
		Fences: o.controllers.has(nodeFencing),
	}
}

func (o *options) singleNodeConfig(s controllers.Settings) singlenode.Config {
	return singlenode.Config{
		Settings: s, UnmountGrace: o.podSafety.unmountGrace, Fences: o.controllers.has(nodeFencing),
	}
}

func (o *options) statefulSetConfig(s controllers.Settings) statefulset.Config {
	return statefulset.Config{Settings: s, Grace: o.statefulSet.scaleDownGrace}
}

func (o *options) fencingConfig(s controllers.Settings) fencing.Config {
	return fencing.Config{
		Settings: s, KeepReturned: o.nodeFencing.keepReturned,
	}
}

// Validate returns an error that names all invalid settings, or nil.
func (o *options) Validate() error {
	wrong := []error{o.controllers.validate(), o.cluster.Validate(), o.leader.Validate(), o.http.Validate()}
	add := func(bad bool, format string, args ...any) {
		if bad {
			wrong = append(wrong, fmt.Errorf(format, args...))
		}
	}
	add(o.controllers.none() && o.webhooks.address == "",
		"--controllers=%s: no controller is selected; name one, or set --webhook-address", strings.Join(o.controllers, ","))
	add(o.controllers.has(singleNode) && !o.controllers.has(podSafety) && !o.releaseFinalizers,
		"--controllers=%s: single-node needs pod-safety, which keeps the object of a pod until its processes have ended",
		strings.Join(o.controllers, ","))
	add(len(o.releaseDrivers) > 0 && !o.releaseFinalizers, "--release-drivers: add --release-finalizers")
	add(o.releaseFinalizers && o.dryRun, "--release-finalizers: a dry run removes nothing; leave out --dry-run")
	add(o.releaseFinalizers && o.leader.On && !o.leader.KnowsNamespace(),
		"--release-finalizers: the namespace of the Lease is unknown outside of a pod; set --leader-election-namespace "+
			"to the namespace of volume-guard")
	_, err := pvc.ParseTerminatedPods(o.terminatedPods)
	add(err != nil, "--terminated-pods=%s: must be release or hold", o.terminatedPods)
	add(o.workers < 1, "--worker-threads=%d: must be at least 1", o.workers)
	add(o.retryStart <= 0, "--retry-interval-start=%v: must be positive", o.retryStart)
	add(o.retryMax < o.retryStart, "--retry-interval-max=%v: must not be below --retry-interval-start=%v", o.retryMax,
		o.retryStart)
	add(o.patience <= 0, "--protection-patience=%v: must be positive", o.patience)
	add(o.podSafety.unmountGrace <= 0, "--unmount-grace=%v: must be positive", o.podSafety.unmountGrace)
	add(o.statefulSet.scaleDownGrace <= 0, "--scale-down-grace=%v: must be positive", o.statefulSet.scaleDownGrace)
	add(o.nodeFencing.keepReturned <= 0, "--keep-returned-fences=%v: must be positive", o.nodeFencing.keepReturned)
	add(o.web.serve && !o.http.Serves(), "--web: nothing is served; set --http-endpoint")
	add(o.grace < 0, "--shutdown-grace=%v: must not be negative", o.grace)
	return errors.Join(wrong...)
}
