package main

import (
	"errors"
	"fmt"
	"time"

	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-base/logs"
	logsapi "k8s.io/component-base/logs/api/v1"
	_ "k8s.io/component-base/logs/json/register" // makes --logging-format=json known
)

// options is what the command line says.
type options struct {
	csiAddress string
	timeout    time.Duration

	kubeconfig   string
	kubeAPIQPS   float32
	kubeAPIBurst int

	role           string
	workers        int
	protectWorkers int
	retryStart     time.Duration
	retryMax       time.Duration

	leaderElection bool
	leaseNamespace string
	identity       string
	leaseDuration  time.Duration
	renewDeadline  time.Duration
	retryPeriod    time.Duration

	httpEndpoint string
	metricsPath  string
	grace        time.Duration

	version bool
	logging *logs.Options
}

// roleOwner: nobody else deletes this driver's volumes.
const roleOwner = "owner"

// flags returns the flags that set o, in the groups that --help shows. Names and defaults
// are those of the other kubernetes-csi sidecars wherever they have such a flag.
func (o *options) flags() cliflag.NamedFlagSets {
	var groups cliflag.NamedFlagSets

	fs := groups.FlagSet("CSI driver")
	fs.StringVar(&o.csiAddress, "csi-address", "/run/csi/socket",
		"The CSI driver's socket: an absolute path, or unix:///path. The folder must exist; the driver is waited for.")
	fs.DurationVar(&o.timeout, "timeout", 10*time.Second,
		"How long one call to the CSI driver may take. One that takes longer is tried again: it may have deleted.")

	fs = groups.FlagSet("Kubernetes")
	fs.StringVar(&o.kubeconfig, "kubeconfig", "",
		"Path of a kubeconfig file. Without it, the pod's service account is used.")
	fs.Float32Var(&o.kubeAPIQPS, "kube-api-qps", 0,
		"Calls a second to the API server, over all workers. 0 sets no limit of our own: --worker-threads bounds the calls at once, and the API server's 429 answers are obeyed.")
	fs.IntVar(&o.kubeAPIBurst, "kube-api-burst", 0,
		"Calls to the API server that may exceed --kube-api-qps at once. Required with it.")

	fs = groups.FlagSet("Reclaiming")
	fs.StringVar(&o.role, "role", roleOwner,
		"What else works on this driver's PVs. owner: nobody; volumes are deleted in any order of deletion.")
	fs.IntVar(&o.workers, "worker-threads", 100,
		"How many volumes are deleted at once.")
	fs.IntVar(&o.protectWorkers, "protect-threads", 8,
		"How many finalizers are put on existing PVs at once, beside --worker-threads.")
	fs.DurationVar(&o.retryStart, "retry-interval-start", time.Second,
		"Delay after the first failure of a deletion. It doubles with each failure, up to --retry-interval-max.")
	fs.DurationVar(&o.retryMax, "retry-interval-max", 5*time.Minute,
		"Longest delay after a failed deletion.")

	fs = groups.FlagSet("Leader election")
	fs.BoolVar(&o.leaderElection, "leader-election", false,
		"Act only while holding the driver's Lease. Needed with more than one replica. The Lease is the one that the stock external-provisioner takes.")
	fs.StringVar(&o.leaseNamespace, "leader-election-namespace", "",
		"Namespace of the Lease. Default: that of the pod.")
	fs.StringVar(&o.identity, "leader-election-identity", "",
		"What tells this replica from the others. Default: the host name, which is the pod's name.")
	fs.DurationVar(&o.leaseDuration, "leader-election-lease-duration", 15*time.Second,
		"How long the others wait for a leader that does not renew its Lease.")
	fs.DurationVar(&o.renewDeadline, "leader-election-renew-deadline", 10*time.Second,
		"How long the leader tries to renew its Lease before it gives up.")
	fs.DurationVar(&o.retryPeriod, "leader-election-retry-period", 5*time.Second,
		"How long to wait between tries to take or renew the Lease.")

	fs = groups.FlagSet("Health and metrics")
	fs.StringVar(&o.httpEndpoint, "http-endpoint", "",
		"TCP address for /healthz, /readyz, /healthz/leader-election and the metrics, such as :8080. Default: none.")
	fs.StringVar(&o.metricsPath, "metrics-path", "/metrics",
		"Path of the metrics.")
	fs.DurationVar(&o.grace, "shutdown-grace", 15*time.Second,
		"How long deletions in hand may take to end after SIGTERM before they are cut off. Keep it below the pod's terminationGracePeriodSeconds.")

	logsapi.AddFlags(o.logging, groups.FlagSet("Logs"))
	fs = groups.FlagSet("Other")
	fs.BoolVar(&o.version, "version", false, "Print the version and exit.")
	return groups
}

func newOptions() *options { return &options{logging: logs.NewOptions()} }

// validate returns every setting that is wrong.
func (o *options) validate() error {
	var wrong []error
	add := func(bad bool, format string, args ...any) {
		if bad {
			wrong = append(wrong, fmt.Errorf(format, args...))
		}
	}
	add(o.role != roleOwner, "--role=%s: this version knows the role %q only", o.role, roleOwner)
	add(o.timeout <= 0, "--timeout=%v: must be positive", o.timeout)
	add(o.workers < 1, "--worker-threads=%d: must be at least 1", o.workers)
	add(o.protectWorkers < 1, "--protect-threads=%d: must be at least 1", o.protectWorkers)
	add(o.retryStart <= 0, "--retry-interval-start=%v: must be positive", o.retryStart)
	add(o.retryMax < o.retryStart, "--retry-interval-max=%v: must not be below --retry-interval-start=%v", o.retryMax, o.retryStart)
	add(o.kubeAPIQPS < 0, "--kube-api-qps=%v: must not be negative", o.kubeAPIQPS)
	add(o.kubeAPIQPS > 0 && o.kubeAPIBurst < 1, "--kube-api-burst=%d: must be at least 1 where --kube-api-qps is set", o.kubeAPIBurst)
	add(o.leaderElection && o.leaseDuration <= o.renewDeadline,
		"--leader-election-lease-duration=%v: must be above --leader-election-renew-deadline=%v", o.leaseDuration, o.renewDeadline)
	add(o.leaderElection && o.renewDeadline <= o.retryPeriod*12/10,
		"--leader-election-renew-deadline=%v: must be above 1.2 × --leader-election-retry-period=%v", o.renewDeadline, o.retryPeriod)
	add(o.grace < 0, "--shutdown-grace=%v: must not be negative", o.grace)
	add(o.metricsPath == "" || o.metricsPath[0] != '/', "--metrics-path=%q: must begin with /", o.metricsPath)
	return errors.Join(wrong...)
}
