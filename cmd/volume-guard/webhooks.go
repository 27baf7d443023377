package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/csi-reclaimer/csi-reclaimer/cmd/internal/app"
	"github.com/csi-reclaimer/csi-reclaimer/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/internal/panics"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/admission"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/admission/certs"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/admission/podsafety"
)

type webhookOptions struct {
	address, service, secret string
	names                    []string
	issue                    bool
}

func (o *webhookOptions) flags(fs *pflag.FlagSet) {
	fs.StringVar(&o.address, "webhook-address", "",
		"TCP address of the webhooks, such as :9443. They protect PVs in the write that sets their policy to Delete, "+
			"hold and gate pods in the write that creates them, all for API servers before 1.36, and keep pods off claims that "+
			"are terminating. The API server calls them once their configurations exist: "+admission.WebhooksName+
			" (which also lists the drivers), "+podsafety.Name+" and "+podsafety.GateName+". Default: none.")
	fs.StringVar(&o.service, "webhook-service", name,
		"Name of the Service, in the namespace of the Lease, through which the API server calls the webhooks. It is the "+
			"subject of their certificate.")
	fs.StringVar(&o.secret, "webhook-secret", name+"-webhooks",
		"Name of the Secret, in the same namespace, in which the replicas store the certificate, which they rotate.")
	fs.BoolVar(&o.issue, "webhook-issue-certificate", true,
		"Issue and rotate the certificate. If false, others do, such as cert-manager: --webhook-secret is then only read, "+
			"and has the keys tls.crt, tls.key, and ca.crt with the authorities that the API server has to trust.")
	fs.StringSliceVar(&o.names, "webhook-names", nil,
		"Additional DNS names of the certificate, if the webhook configurations name a URL.")
}

// webhooks serves the admission webhooks on every replica, leader or not.
type webhooks struct {
	listener net.Listener
	server   *http.Server
	rotator  *certs.Rotator
	reader   *admission.LiveReader
	drivers  *admission.DriverWatcher
}

// newWebhooks listens on the port without serving yet, and returns nil without a port and in a dry run.
func (o *options) newWebhooks(config *rest.Config, metrics prometheus.Registerer) (*webhooks, error) {
	if o.webhooks.address == "" || o.settings.DryRun {
		return nil, nil
	}
	namespace := o.leader.Namespace()
	var w webhooks
	var err error
	if w.rotator, err = certs.New(config, certs.Config{
		Namespace: namespace, Secret: o.webhooks.secret, External: !o.webhooks.issue, Metrics: metrics,
		Webhooks: []string{admission.WebhooksName, podsafety.Name, podsafety.GateName},
		Names:    append([]string{o.webhooks.service + "." + namespace + ".svc"}, o.webhooks.names...),
	}); err != nil {
		return nil, err
	}
	if w.reader, err = admission.NewReader(config); err != nil {
		return nil, err
	}
	if w.drivers, err = admission.NewDriverWatcher(config, metrics); err != nil {
		return nil, err
	}
	w.server = admission.NewServer(admission.Handler(w.drivers.Drivers, w.reader), w.rotator.Certificate)
	if w.listener, err = net.Listen("tcp", o.webhooks.address); err != nil {
		return nil, fmt.Errorf("listen on --webhook-address=%s: %w", o.webhooks.address, err)
	}
	return &w, nil
}

func (w *webhooks) checkers() []app.PermissionChecker {
	return []app.PermissionChecker{w.rotator, w.reader, w.drivers}
}

// begun returns an error until the webhooks can answer requests.
func (w *webhooks) begun() error {
	switch {
	case !w.rotator.Ready():
		return errors.New("waiting for the webhooks' certificate")
	case !w.drivers.Synced():
		return errors.New("waiting for the webhook configuration that lists the drivers")
	}
	return nil
}

// answerWithin is the time that requests in progress have to end, above the webhooks' timeoutSeconds of 4.
const answerWithin = 5 * time.Second

// lingerTime is the time that Kubernetes has to take a terminating pod out of its Service. A request that is refused
// until then fails, although another replica could answer it.
const lingerTime = 3 * time.Second

// run serves until some seconds after ctx has ended. An error is returned at once, because the program must not run
// without its port.
func (w *webhooks) run(ctx context.Context) error {
	klog.FromContext(ctx).Info("Serving webhooks", "address", w.listener.Addr().String())
	serving, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	all.Go(func() { w.rotator.Run(serving) })
	all.Go(func() {
		panics.Restart(serving, clock.RealClock{}, "drivers of the webhook", w.drivers.Run, func(error) {})
	})
	return serve(ctx, w.server, w.listener, lingerTime)
}

// serve answers requests until linger after the end of ctx, and lets those in progress end.
func serve(ctx context.Context, server *http.Server, on net.Listener, linger time.Duration) error {
	serving, served := context.WithCancel(context.WithoutCancel(ctx))
	var closing sync.WaitGroup
	defer closing.Wait()
	defer served()
	closing.Go(func() {
		select {
		case <-serving.Done():
			return
		case <-ctx.Done():
		}
		controller.Pause(serving, clock.RealClock{}, linger)
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), answerWithin)
		defer cancel()
		if server.Shutdown(grace) != nil {
			_ = server.Close()
		}
	})
	if err := server.ServeTLS(on, "", ""); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve webhooks: %w", err)
	}
	return nil
}
