package controller

import (
	"fmt"

	"k8s.io/client-go/rest"

	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/controllers"
)

// Retries returns the delays after failed calls.
func Retries(s controllers.Settings) Backoff { return Backoff{First: s.RetryStart, Max: s.RetryMax} }

// QueueOf is NewQueue with the clock of s, for keys that are names.
func QueueOf(c *Controller, s controllers.Settings, name string, workers int,
	reconcile Reconciler[string]) *Queue[string] {
	return NewQueue(c, Config{Name: name, Workers: workers, Clock: s.Clock}, reconcile)
}

// Connect returns the clients of a controller for the cluster of config, which is copied. purpose begins the error if
// config is nil or a setting is invalid.
func Connect(purpose string, config *rest.Config, cfg interface{ Validate() error }) (kube.Clients, error) {
	if config == nil {
		return kube.Clients{}, fmt.Errorf("%s: nil rest.Config", purpose)
	}
	if err := cfg.Validate(); err != nil {
		return kube.Clients{}, fmt.Errorf("%s: %w", purpose, err)
	}
	return kube.NewClients(config)
}
