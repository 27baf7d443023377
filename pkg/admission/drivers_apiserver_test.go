//go:build controlplane && unix

package admission

import (
	"context"
	"reflect"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

func TestDriverWatcher(t *testing.T) {
	ctx := t.Context()
	configs := client.AdmissionregistrationV1().MutatingWebhookConfigurations()
	service := Service{Namespace: "none", Name: "none"}
	other := PVWebhooks(service, Drivers{volume.RoleOwner: {"other"}})
	other.Name = "another"
	_, err := configs.Create(ctx, other, metav1.CreateOptions{})
	must(t, err)
	t.Cleanup(func() { must(t, configs.Delete(context.WithoutCancel(ctx), other.Name, metav1.DeleteOptions{})) })

	l, err := NewDriverWatcher(admin, prometheus.NewRegistry())
	must(t, err)
	following, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() { defer close(ended); l.Run(following) }()
	t.Cleanup(func() { cancel(); <-ended })
	until(t, "the first look", l.Synced)
	if len(l.Drivers()) > 0 || l.unreadable() != 0 {
		t.Errorf("without the configuration: %v, unreadable %v", l.Drivers(), l.unreadable())
	}
	want := Drivers{volume.RoleOwner: {driver, "second.csi.example.com"}, volume.RoleCompanion: {"other.csi.example.com"}}
	config, err := configs.Create(ctx, PVWebhooks(service, want), metav1.CreateOptions{})
	must(t, err)
	t.Cleanup(func() { _ = configs.Delete(context.WithoutCancel(ctx), WebhooksName, metav1.DeleteOptions{}) })
	until(t, "what the configuration says", func() bool {
		return reflect.DeepEqual(l.Drivers(), want) &&
			l.unreadable() == 0
	})
	_, err = RemoveDrivers(ctx, admin, []string{driver})
	must(t, err)
	want[volume.RoleOwner] = []string{"second.csi.example.com"}
	until(t, "a driver to be gone", func() bool { return reflect.DeepEqual(l.Drivers(), want) })
	// An API server before 1.28 stores it in this form.
	config, err = configs.Get(ctx, config.Name, metav1.GetOptions{})
	must(t, err)
	for i := range config.Webhooks {
		config.Webhooks[i].MatchConditions = nil
	}
	_, err = configs.Update(ctx, config, metav1.UpdateOptions{})
	must(t, err)
	until(t, "a list that cannot be read", func() bool {
		return l.unreadable() == 1 &&
			len(l.Drivers()[volume.RoleOwner]) == 0
	})
	must(t, configs.Delete(ctx, WebhooksName, metav1.DeleteOptions{}))
	until(t, "the end of the configuration", func() bool { return len(l.Drivers()) == 0 && l.unreadable() == 0 })
}
