package app

import (
	"context"
	"fmt"
	"os"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	"github.com/csi-reclaimer/csi-reclaimer/internal/events"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/leadership"
)

type ClusterOptions struct {
	kubeconfig string
	master     string
	qps        float32
	burst      int
}

// kubeconfigVariable names a kubeconfig file, as in the other kubernetes-csi sidecars and kubectl.
const kubeconfigVariable = "KUBECONFIG"

// Flags adds the flags that set o, where limit is the help text of --kube-api-qps.
func (o *ClusterOptions) Flags(fs *pflag.FlagSet, limit string) {
	fs.StringVar(&o.kubeconfig, "kubeconfig", "",
		"Path of a kubeconfig file. Default: the environment variable "+kubeconfigVariable+", which names one file; "+
			"without both, the pod's service account.")
	fs.Float32Var(&o.qps, "kube-api-qps", 0, limit)
	fs.IntVar(&o.burst, "kube-api-burst", rest.DefaultBurst,
		"Burst of requests to the API server above --kube-api-qps. Without effect if that is 0.")
}

// MasterFlag adds the flag --master of the stock external-provisioner.
func (o *ClusterOptions) MasterFlag(fs *pflag.FlagSet) {
	fs.StringVar(&o.master, "master", "",
		"URL of the API server, in place of the one in the kubeconfig file. Without a kubeconfig file, no credentials are "+
			"sent.")
}

// Validate returns an error that names the invalid setting, or nil.
func (o *ClusterOptions) Validate() error {
	if o.qps > 0 && o.burst < 1 {
		return fmt.Errorf("--kube-api-burst=%d: must be at least 1 where --kube-api-qps is set", o.burst)
	}
	return nil
}

// Config returns the client configuration for the API server, with the program's name in its user agent.
func (o *ClusterOptions) Config(program string) (*rest.Config, error) {
	var config *rest.Config
	var err error
	// The flag takes precedence, because in a shell the variable may name another cluster.
	file, from := o.kubeconfig, "--kubeconfig"
	if file == "" {
		file, from = os.Getenv(kubeconfigVariable), "the environment variable "+kubeconfigVariable
	}
	switch {
	case file != "":
		if config, err = clientcmd.BuildConfigFromFlags(o.master, file); err != nil {
			return nil, fmt.Errorf("%s=%s: %w", from, file, err)
		}
	case o.master != "":
		if config, err = clientcmd.BuildConfigFromFlags(o.master, ""); err != nil {
			return nil, fmt.Errorf("--master=%s: %w", o.master, err)
		}
	default:
		if config, err = rest.InClusterConfig(); err != nil {
			return nil, fmt.Errorf("find the cluster: %w; outside of a pod, set --kubeconfig", err)
		}
	}
	// For client-go, 0 means its own default of 5 a second. The limiter of this program's clients treats 0 as no limit,
	// and therefore also any negative number.
	config.QPS, config.Burst = max(o.qps, 0), o.burst
	return rest.AddUserAgent(config, program), nil
}

// LeaderConfig returns a copy of config for clients that write as the leader: they send no write while the Lease is
// not held. Do not use it for the client of the Lease itself, nor for writes that every replica makes.
func LeaderConfig(config *rest.Config, holder leadership.Holder) *rest.Config {
	acting := rest.CopyConfig(config)
	acting.Wrap(leadership.Transport(holder))
	return acting
}

// EventRecorder returns a recorder of Events for a component, with its own client and rate limit, so that Events
// never delay other work. After the holder has lost its Lease, Events are neither recorded nor sent. stop ends the
// recorder.
func EventRecorder(ctx context.Context, config *rest.Config, holder leadership.Holder, component string,
	metrics prometheus.Registerer) (_ record.EventRecorder, stop func(), err error) {
	own := LeaderConfig(config, holder)
	own.QPS, own.Burst = 10, 50
	client, err := kubernetes.NewForConfig(own)
	if err != nil {
		return nil, nil, fmt.Errorf("create a client for events: %w", err)
	}
	sender, err := events.NewSender(events.SenderConfig{
		Component: component, Events: client.CoreV1(), Metrics: metrics, Logger: klog.FromContext(ctx),
		Leads: func() bool { return leadership.Check(holder) == nil },
	})
	if err != nil {
		return nil, nil, err
	}
	ctx, end := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { sender.Run(ctx) })
	return sender, func() {
		end()
		running.Wait()
	}, nil
}
