package leader

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"

	"github.com/csi-reclaimer/csi-reclaimer/internal/settings"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/leadership"
)

// Options are the flags for leader election.
type Options struct {
	// On enables the election.
	On bool
	// Keep leaves the Lease held at the end of the program, so that the next replica waits until it expires. By default
	// the Lease is released once no work is in progress.
	Keep bool
	// Settings are the settings of the election, without the name of the Lease.
	Settings Config
}

// Flags adds the flags that set o, with the names and defaults of the other kubernetes-csi sidecars, except that the
// default of --leader-election is o.On. lease and namespace complete the help texts: lease names the Lease, and
// namespace names further objects in its namespace.
func (o *Options) Flags(fs *pflag.FlagSet, lease, namespace string) {
	c := &o.Settings
	fs.BoolVar(&o.On, "leader-election", o.On,
		"Act only while holding "+lease)
	fs.StringVar(&c.Namespace, "leader-election-namespace", "",
		"Namespace of the Lease"+namespace+". Default: the pod's namespace.")
	fs.StringVar(&c.Identity, "leader-election-identity", "",
		"Identity of this replica in the election, which no other replica may have. Default: the host name, which is the "+
			"pod's name, and a random part.")
	fs.DurationVar(&c.LeaseDuration, "leader-election-lease-duration", 15*time.Second,
		"How long other replicas wait for a leader that does not renew its Lease.")
	fs.DurationVar(&c.RenewDeadline, "leader-election-renew-deadline", 10*time.Second,
		"How long the leader tries to renew its Lease before it gives up.")
	fs.DurationVar(&c.RetryPeriod, "leader-election-retry-period", 5*time.Second,
		"How long to wait between attempts to take or renew the Lease.")
	fs.Var((*labels)(&c.Labels), "leader-election-labels",
		"Labels that the leader sets on its Lease, as key:value,key:value. Other labels on the Lease stay.")
}

// labels is a flag in the form of the other kubernetes-csi sidecars (csi-lib-utils, standardflags).
type labels map[string]string

func (l *labels) String() string {
	pairs := make([]string, 0, len(*l))
	for _, key := range slices.Sorted(maps.Keys(*l)) {
		pairs = append(pairs, key+":"+(*l)[key])
	}
	return strings.Join(pairs, ",")
}

// Set adds labels. It rejects an invalid label, because the API server would reject each write of the Lease.
func (l *labels) Set(text string) error {
	for pair := range strings.SplitSeq(text, ",") {
		key, value, found := strings.Cut(pair, ":")
		if !found {
			return fmt.Errorf("%q is not key:value", pair)
		}
		if problems := append(validation.IsQualifiedName(key), validation.IsValidLabelValue(value)...); len(problems) > 0 {
			return fmt.Errorf("%q is not a label: %s", pair, problems[0])
		}
		if *l == nil {
			*l = labels{}
		}
		(*l)[key] = value
	}
	return nil
}

func (l *labels) Type() string { return "key:value,..." }

// Validate returns an error that names all invalid settings, or nil.
func (o *Options) Validate() error {
	if !o.On {
		return nil
	}
	var wrong settings.Wrong
	c := o.Settings
	wrong.If(c.LeaseDuration < time.Second, "--leader-election-lease-duration=%v: must be at least 1s, because a Lease "+
		"has whole seconds", c.LeaseDuration)
	wrong.If(c.LeaseDuration <= c.RenewDeadline, "--leader-election-lease-duration=%v: must be above "+
		"--leader-election-renew-deadline=%v", c.LeaseDuration, c.RenewDeadline)
	wrong.If(c.RenewDeadline <= c.RetryPeriod*12/10, "--leader-election-renew-deadline=%v: must be above 1.2 × "+
		"--leader-election-retry-period=%v", c.RenewDeadline, c.RetryPeriod)
	return wrong.Err()
}

// Namespace returns the namespace of the Lease: by default the pod's, or else "default".
func (o *Options) Namespace() string {
	return cmp.Or(o.Settings.Namespace, ownNamespace(), v1.NamespaceDefault)
}

// KnowsNamespace reports whether the namespace of the Lease is set, or is that of this program's pod. Otherwise
// Namespace is a guess.
func (o *Options) KnowsNamespace() bool { return cmp.Or(o.Settings.Namespace, ownNamespace()) != "" }

// Identity returns the identity of this process, which is the same in every call. By default it is unique: the host
// name, which is the pod's name, and a random part.
func (o *Options) Identity() (string, error) {
	if o.Settings.Identity == "" {
		host, err := os.Hostname()
		if err != nil {
			return "", fmt.Errorf("take the host name as leader election identity: %w", err)
		}
		o.Settings.Identity = leadership.NewIdentity(host)
	}
	return o.Settings.Identity, nil
}

// Clock returns the clock that measures how long this replica may act, for the Elector and for all writers. It is nil
// without an election, which means that the replica may always act. A dry run has no election, because it writes
// nothing and two of them cannot conflict.
func (o *Options) Clock(dryRun bool) *leadership.Clock {
	if !o.On || dryRun {
		return nil
	}
	return leadership.NewClock()
}

// Elector returns an Elector for the Lease of this name that has not begun. It copies config without its rate limits,
// so that a busy program still renews its Lease. clock is the result of Clock, and without an election both are nil.
func (o *Options) Elector(config *rest.Config, name string, clock *leadership.Clock) (*Elector, error) {
	if clock == nil {
		return nil, nil
	}
	if _, err := o.Identity(); err != nil {
		return nil, err
	}
	c := o.Settings
	c.Name, c.Namespace, c.Clock = name, o.Namespace(), clock
	own := rest.CopyConfig(config)
	own.QPS, own.Burst = 0, 0
	// A request that hangs leaves time for another one before the renew deadline, as in client-go's NewFromKubeconfig.
	own.Timeout = max(time.Second, c.RenewDeadline/2)
	client, err := kubernetes.NewForConfig(rest.AddUserAgent(own, "leader-election"))
	if err != nil {
		return nil, fmt.Errorf("create a client for leader election: %w", err)
	}
	return &Elector{cfg: c, client: client, health: leaderelection.NewLeaderHealthzAdaptor(healthTimeout), keep: o.Keep},
		nil
}
