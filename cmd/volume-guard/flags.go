package main

import (
	"errors"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/tools/record"
	cliflag "k8s.io/component-base/cli/flag"

	"github.com/csi-reclaimer/csi-reclaimer/cmd/internal/app"
	"github.com/csi-reclaimer/csi-reclaimer/cmd/internal/health"
	"github.com/csi-reclaimer/csi-reclaimer/cmd/internal/leader"
	fencingengine "github.com/csi-reclaimer/csi-reclaimer/internal/engine/fencing"
	podsafetyengine "github.com/csi-reclaimer/csi-reclaimer/internal/engine/podsafety"
	setengine "github.com/csi-reclaimer/csi-reclaimer/internal/engine/statefulset"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/internal/settings"
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
	// selected reports whether the command line has --controllers.
	selected func() bool
	// settings and the Configs below it hold the values of flags; configs completes them.
	settings controllers.Settings
	// releaseFinalizers removes the finalizers that the controllers added, and exits.
	releaseFinalizers bool
	// releaseDrivers are the drivers whose csi-reclaimer finalizers are removed as well.
	releaseDrivers []string

	// watchFences has the controllers that protect pods watch NodeFences although node-fencing does not run.
	watchFences bool

	terminatedPods string
	patience       time.Duration
	podSafety      podsafety.Config
	statefulSet    statefulset.Config
	nodeFencing    fencing.Config

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
	controllers := fs
	o.selected = func() bool { return controllers.Changed("controllers") }
	fs.StringSliceVar((*[]string)(&o.controllers), "controllers", []string{"*"},
		"Controllers to run, as a list: * for all that are on by default, NAME to add one, -NAME to leave one out. "+
			"On by default: "+strings.Join(onByDefault(), ", ")+". Off by default: "+strings.Join(offByDefault(), ", ")+".")
	fs.BoolVar(&o.settings.DryRun, "dry-run", false,
		"Decide, and report in the log and the metrics, but write nothing to the API server (neither Events nor a Lease).")
	fs.BoolVar(&o.releaseFinalizers, "release-finalizers", false,
		"Remove every finalizer, and from claims of StatefulSets every owner reference and annotation, that the "+
			"--controllers added, from all objects of the cluster, print how many, and exit. Name all that have run: * stands "+
			"for those that are on by default. No volume is deleted. Finalizers "+
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
			". Stop their csi-reclaimer before. Without --controllers, nothing else is released, and volume-guard may run.")
	fs.IntVar(&o.settings.Workers, "worker-threads", 10,
		"How many objects each controller works on concurrently.")
	fs.DurationVar(&o.settings.RetryStart, "retry-interval-start", time.Second,
		"Delay after the first failure. It doubles with each failure, up to --retry-interval-max.")
	fs.DurationVar(&o.settings.RetryMax, "retry-interval-max", 5*time.Minute,
		"Longest delay after a failure.")

	o.protectionFlags(&groups)
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

// protectionFlags adds the flags of single controllers.
func (o *options) protectionFlags(groups *cliflag.NamedFlagSets) {
	fs := groups.FlagSet("Protection")
	fs.StringVar(&o.terminatedPods, "terminated-pods", pvc.ReleaseTerminated.String(),
		"Whether terminated pods (Succeeded or Failed) keep their claims from being deleted. release: they do not. hold: "+
			"until the pod itself is deleted, as in kube-controller-manager; a pod that is Failed because its node was lost "+
			"may still run there.")
	fs.DurationVar(&o.patience, "protection-patience", 30*time.Second,
		"How long Kubernetes' own protection controllers must not act on an object that needs it before they count as "+
			"off. It applies after each start, and each time that they were observed to act.")

	fs = groups.FlagSet("Pod safety")
	fs.DurationVar(&o.podSafety.UnmountGrace, "unmount-grace", podsafetyengine.DefaultUnmountGrace,
		"How long to hold a pod after its processes have ended, where nothing shows that its volumes are unmounted: after "+
			"a force deletion, after the pod garbage collector, and while no policy refuses force deletions. A guess: a "+
			"kubelet unmounts within seconds, and retries for as long as that fails. single-node frees the lock of a claim "+
			"that long after its pod has completed, too.")
	fs.BoolVar(&o.podSafety.DeleteOrphans, "delete-orphaned-pods", false,
		"Delete held pods whose Node no longer exists, once the Lease of the node was not renewed for 40s. Only for "+
			"clusters whose kube-controller-manager runs without its controller pod-garbage-collector-controller, which "+
			"does that.")
	fs.BoolVar(&o.podSafety.VolumeLocks, "volume-locks", true,
		"While a held pod is terminating on a node that is not Ready, or its unmount is overdue, have the VolumeLock of "+
			"the node name its volumes: the policy csi-reclaimer-attach-lock then refuses to attach them to another node. "+
			"Needs pod-safety-crd.yaml. Do not set --disable-force-detach-on-timeout of kube-controller-manager, which can "+
			"keep the volumes of released pods attached to a lost node. --volume-locks=false removes all VolumeLocks.")
	fs.BoolVar(&o.podSafety.NodeCondition, "node-unreachable-condition", true,
		"Set the condition "+string(objects.NodeUnreachable)+" of pods on a node whose condition Ready is Unknown, and "+
			"remove it when the node is back: of held pods, and of all pods in namespaces with the label "+
			podsafetyengine.NamespaceLabel+". --node-unreachable-condition=false removes it from all pods.")

	groups.FlagSet("Claims of StatefulSets").DurationVar(&o.statefulSet.Grace, "scale-down-grace", setengine.DefaultGrace,
		"How long a claim that the policy whenScaled: Delete of its StatefulSet deletes stays after its pod is gone, where "+
			"volume-guard deletes it. Scaling up again meanwhile keeps the data. The annotation "+
			setengine.GraceAnnotation+" of a StatefulSet takes precedence.")
	groups.FlagSet("Node fencing").DurationVar(&o.nodeFencing.KeepReturned, "keep-returned-fences",
		fencingengine.DefaultKeepReturned, "How long a NodeFence is kept as a record after its node has returned.")
}

// configs are the Configs of all controllers.
type configs struct {
	inTree      intree.Config
	claims      pvc.Config
	pvs         inuse.Config
	singleNode  singlenode.Config
	podSafety   podsafety.Config
	statefulSet statefulset.Config
	nodeFencing fencing.Config
}

func (o *options) configs(events record.EventRecorder, metrics prometheus.Registerer) configs {
	s := o.settings
	s.Events, s.Metrics, s.Watches = events, metrics, kube.NewWatches()
	ended, _ := pvc.ParseTerminatedPods(o.terminatedPods) // Validate has reported the error
	pvs := inuse.Config{Settings: s, Mode: inuse.ModeFull, Patience: o.patience}
	fences := o.controllers.has(nodeFencing)
	c := configs{inTree: intree.Config{Settings: s}, claims: pvc.Config{Config: pvs, TerminatedPods: ended}, pvs: pvs,
		singleNode: singlenode.Config{Settings: s, UnmountGrace: o.podSafety.UnmountGrace, Fences: fences,
			WatchFences: o.watchFences},
		podSafety: o.podSafety, statefulSet: o.statefulSet, nodeFencing: o.nodeFencing}
	c.podSafety.Settings, c.statefulSet.Settings, c.nodeFencing.Settings = s, s, s
	c.podSafety.Fences, c.podSafety.WatchFences = fences, o.watchFences
	return c
}

// Validate returns an error that names all invalid settings, or nil.
func (o *options) Validate() error {
	var wrong settings.Wrong
	wrong.If(o.controllers.none() && o.webhooks.address == "",
		"--controllers=%s: no controller is selected; name one, or set --webhook-address", strings.Join(o.controllers, ","))
	wrong.If(o.controllers.has(singleNode) && !o.controllers.has(podSafety) && !o.releaseFinalizers,
		"--controllers=%s: single-node needs pod-safety, which keeps the object of a pod until its processes have ended",
		strings.Join(o.controllers, ","))
	wrong.If(o.releaseFinalizers && !o.selected() && len(o.releaseDrivers) == 0,
		"--release-finalizers: name all controllers that have run with --controllers; * stands for %s alone",
		strings.Join(onByDefault(), ", "))
	wrong.If(len(o.releaseDrivers) > 0 && !o.releaseFinalizers, "--release-drivers: add --release-finalizers")
	wrong.If(o.releaseFinalizers && o.settings.DryRun,
		"--release-finalizers: a dry run removes nothing; leave out --dry-run")
	wrong.If(o.releaseFinalizers && o.selected() && o.leader.On && !o.leader.KnowsNamespace(),
		"--release-finalizers: the namespace of the Lease is unknown outside of a pod; set --leader-election-namespace "+
			"to the namespace of volume-guard")
	_, err := pvc.ParseTerminatedPods(o.terminatedPods)
	wrong.If(err != nil, "--terminated-pods=%s: must be release or hold", o.terminatedPods)
	s := o.settings
	wrong.If(s.Workers < 1, "--worker-threads=%d: must be at least 1", s.Workers)
	wrong.If(s.RetryStart <= 0, "--retry-interval-start=%v: must be positive", s.RetryStart)
	wrong.If(s.RetryMax < s.RetryStart, "--retry-interval-max=%v: must not be below --retry-interval-start=%v", s.RetryMax,
		s.RetryStart)
	wrong.If(o.patience <= 0, "--protection-patience=%v: must be positive", o.patience)
	wrong.If(o.podSafety.UnmountGrace <= 0, "--unmount-grace=%v: must be positive", o.podSafety.UnmountGrace)
	wrong.If(o.statefulSet.Grace <= 0, "--scale-down-grace=%v: must be positive", o.statefulSet.Grace)
	wrong.If(o.nodeFencing.KeepReturned <= 0, "--keep-returned-fences=%v: must be positive", o.nodeFencing.KeepReturned)
	wrong.If(o.web.serve && !o.http.Serves(), "--web: nothing is served; set --http-endpoint")
	wrong.If(o.grace < 0, "--shutdown-grace=%v: must not be negative", o.grace)
	return errors.Join(o.controllers.validate(), o.cluster.Validate(), o.leader.Validate(), o.http.Validate(), wrong.Err())
}
