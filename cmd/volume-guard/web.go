package main

import (
	"context"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"

	"github.com/csi-reclaimer/csi-reclaimer/cmd/internal/app"
	"github.com/csi-reclaimer/csi-reclaimer/cmd/internal/authorization"
	"github.com/csi-reclaimer/csi-reclaimer/cmd/internal/health"
	"github.com/csi-reclaimer/csi-reclaimer/internal/version"
	"github.com/csi-reclaimer/csi-reclaimer/internal/web"
)

// webPath is the path of the page, which is fixed because the permission to get the page names it.
const (
	webPrefix = "web"
	webPath   = "/" + webPrefix + "/"
)

type webOptions struct{ serve bool }

func (o *webOptions) flags(fs *pflag.FlagSet) {
	fs.BoolVar(&o.serve, "web", false,
		"Serve the page of kubectl reclaim web on "+webPath+" of --http-endpoint, on every replica. It shows everything "+
			"that volume-guard may read, except leak reports, to users who may get "+webPath+" as a non-resource URL: the API "+
			"server reviews the token of each request, with and without --http-authorization. Needs "+
			"rbac-volume-guard-web.yaml and the ClusterRole system:auth-delegator.")
}

// serve serves the HTTP port until ctx ends, and running counts its goroutines. It returns the checkers of the
// permissions that serving needs.
func (o *options) serve(ctx context.Context, running *sync.WaitGroup, config *rest.Config, state *health.State,
	metrics *prometheus.Registry) (needs []app.PermissionChecker, err error) {
	filter, err := authorization.New(config)
	if err != nil {
		return nil, err
	}
	if o.http.Authorizes() || o.web.serve {
		needs = append(needs, filter)
	}
	if o.web.serve {
		page, err := web.New(config, web.Config{Prefix: webPrefix, Authorize: filter.For(webPath), Cluster: config.Host,
			Version: version.Get()})
		if err != nil {
			return nil, err
		}
		needs = append(needs, page)
		o.http.Handle(webPath, page)
		running.Go(func() { page.Run(ctx) })
	}
	return needs, o.http.Start(ctx, running, filter, state, metrics)
}
