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

	"github.com/csi-reclaimer/csi-reclaimer/cmd/internal/permissions"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/admission"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/admission/certs"
)

// webhookOptions is what the command line says about the webhooks.
type webhookOptions struct {
	address, service, secret string
	names                    []string
}

func (o *webhookOptions) flags(fs *pflag.FlagSet) {
	fs.StringVar(&o.address, "webhook-address", "",
		"TCP address of the webhooks, such as :9443. They protect PVs in the write that turns them to policy Delete, for API servers before 1.36, and keep pods off claims that are being deleted. The API server asks them once the webhook configurations "+admission.WebhooksName+" are there, which also list the drivers. Default: none.")
	fs.StringVar(&o.service, "webhook-service", name,
		"Name of the Service, in the namespace of the Lease, by which the API server reaches them. Their certificate is for it.")
	fs.StringVar(&o.secret, "webhook-secret", name+"-webhooks",
		"Name of the Secret, in the same namespace, in which the replicas keep that certificate, and exchange it in time.")
	fs.StringSliceVar(&o.names, "webhook-names", nil,
		"DNS names that the certificate is for besides, where the webhook configurations name a URL.")
}

// webhooks serves admission, on every replica.
type webhooks struct {
	listener net.Listener
	server   *http.Server
	keeper   *certs.Keeper
	reader   *admission.APIServer
	listed   *admission.Listed
}

// newWebhooks takes the port, nil where there is to be none; nothing is answered yet. A dry run has none: it
// changes nothing.
func (o *options) newWebhooks(config *rest.Config, metrics prometheus.Registerer) (*webhooks, error) {
	if o.webhooks.address == "" || o.dryRun {
		return nil, nil //nolint:nilnil // no webhooks is an answer of its own here
	}
	namespace := o.leader.Namespace()
	var w webhooks
	var err error
	if w.keeper, err = certs.New(config, certs.Config{
		Namespace: namespace, Secret: o.webhooks.secret, Webhooks: []string{admission.WebhooksName}, Metrics: metrics,
		Names: append([]string{o.webhooks.service + "." + namespace + ".svc"}, o.webhooks.names...),
	}); err != nil {
		return nil, err
	}
	if w.reader, err = admission.NewReader(config); err != nil {
		return nil, err
	}
	if w.listed, err = admission.NewListed(config, metrics); err != nil {
		return nil, err
	}
	w.server = admission.NewServer(admission.Handler(w.listed.Drivers, w.reader), w.keeper.Certificate)
	if w.listener, err = net.Listen("tcp", o.webhooks.address); err != nil {
		return nil, fmt.Errorf("listen on --webhook-address=%s: %w", o.webhooks.address, err)
	}
	return &w, nil
}

// askers tell which rights are missing.
func (w *webhooks) askers() []permissions.Asker {
	return []permissions.Asker{w.keeper, w.reader, w.listed}
}

// begun is an error until they can answer.
func (w *webhooks) begun() error {
	switch {
	case !w.keeper.Ready():
		return errors.New("waiting for the webhooks' certificate")
	case !w.listed.Synced():
		return errors.New("waiting for the webhook configuration that lists the drivers whose PVs are to be protected")
	}
	return nil
}

// answerWithin is how long requests in hand may take at the end: as long as the API server waits.
const answerWithin = 5 * time.Second

// run answers until ctx ends. An error is returned at once: without its port the program is to end.
func (w *webhooks) run(ctx context.Context) error {
	klog.FromContext(ctx).Info("Serving webhooks", "address", w.listener.Addr().String())
	ctx, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	all.Go(func() { w.keeper.Run(ctx) })
	all.Go(func() { w.listed.Run(ctx) })
	all.Go(func() {
		<-ctx.Done()
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), answerWithin)
		defer cancel()
		if w.server.Shutdown(grace) != nil {
			_ = w.server.Close()
		}
	})
	if err := w.server.ServeTLS(w.listener, "", ""); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve webhooks: %w", err)
	}
	return nil
}
