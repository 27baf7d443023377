// Package cluster is how a program reaches its API server, as the command line says.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/pflag"
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/record"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/lease"
)

// Options is what the command line says about the API server.
type Options struct {
	kubeconfig string
	master     string
	qps        float32
	burst      int
}

// kubeconfigVariable names a kubeconfig file, as for the other kubernetes-csi sidecars and kubectl.
const kubeconfigVariable = "KUBECONFIG"

// Flags adds the flags that set o. limit says what --kube-api-qps is a limit on.
func (o *Options) Flags(fs *pflag.FlagSet, limit string) {
	fs.StringVar(&o.kubeconfig, "kubeconfig", "",
		"Path of a kubeconfig file. Default: the environment variable "+kubeconfigVariable+", which names one file; without both, the pod's service account is used.")
	fs.Float32Var(&o.qps, "kube-api-qps", 0, limit)
	fs.IntVar(&o.burst, "kube-api-burst", rest.DefaultBurst,
		"Calls to the API server that may exceed --kube-api-qps at once. Without effect where that sets no limit.")
}

// MasterFlag adds the flag --master of the stock external-provisioner.
func (o *Options) MasterFlag(fs *pflag.FlagSet) {
	fs.StringVar(&o.master, "master", "",
		"URL of the API server, in place of the one in the kubeconfig file. Without a kubeconfig file no credentials are sent.")
}

// Validate returns every setting that is wrong.
func (o *Options) Validate() error {
	var wrong []error
	if o.qps > 0 && o.burst < 1 {
		wrong = append(wrong, fmt.Errorf("--kube-api-burst=%d: must be at least 1 where --kube-api-qps is set", o.burst))
	}
	return errors.Join(wrong...)
}

// Config returns how to reach the API server for the program of this name.
func (o *Options) Config(program string) (*rest.Config, error) {
	var config *rest.Config
	var err error
	// The flag is the nearer one: in a shell, the variable may name another cluster.
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
			return nil, fmt.Errorf("find the cluster: %w; outside of a pod, give --kubeconfig", err)
		}
	}
	// client-go takes 0 for its own default of 5 a second. What limits our clients takes it for no limit, and so any
	// negative number.
	config.QPS, config.Burst = max(o.qps, 0), o.burst
	return rest.AddUserAgent(config, program), nil
}

// Acting returns config for clients that write as the leader: what is to be written when the Lease is not held is
// not sent. It is not for the client of the Lease itself, nor for what every replica writes.
func Acting(config *rest.Config, holder lease.Holder) *rest.Config {
	acting := rest.CopyConfig(config)
	acting.Wrap(lease.Transport(holder))
	return acting
}

// Recorder returns what writes Events in the name of a component, by a client and a limit of its own,
// so that they never hold up other work, as long as the holder's Lease lasts: neither are Events recorded after
// that, nor are those sent that wait. stop ends it.
func Recorder(ctx context.Context, config *rest.Config, holder lease.Holder, component string) (_ record.EventRecorder, stop func(), err error) {
	own := Acting(config, holder)
	own.QPS, own.Burst = 10, 50
	client, err := kubernetes.NewForConfig(own)
	if err != nil {
		return nil, nil, fmt.Errorf("make a client for events: %w", err)
	}
	broadcaster := record.NewBroadcaster(record.WithContext(ctx))
	broadcaster.StartRecordingToSink(&corev1.EventSinkImpl{Interface: client.CoreV1().Events("")})
	recorder := broadcaster.NewRecorder(scheme.Scheme, v1.EventSource{Component: component})
	return lease.Recorder(holder, recorder), broadcaster.Shutdown, nil
}
