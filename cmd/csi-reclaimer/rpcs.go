package main

import (
	"sync/atomic"
	"time"

	csimetrics "github.com/kubernetes-csi/csi-lib-utils/metrics"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"k8s.io/component-base/metrics"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/request"
)

// rpcMetrics measures the calls of the driver (csi_sidecar_operations_seconds). The driver's name determines whether
// the metrics have the label migrated. For drivers with the label, the calls before the name is known are dropped, as
// in the stock external-provisioner.
type rpcMetrics struct {
	// The methods that are not overridden are only for servers.
	csimetrics.CSIMetricsManager
	now atomic.Pointer[csimetrics.CSIMetricsManager]
}

func newRPCMetrics() *rpcMetrics {
	// The legacy registry already has the process's start time, and a second registration would fail.
	first := csimetrics.NewCSIMetricsManagerWithOptions("", csimetrics.WithProcessStartTime(false))
	m := &rpcMetrics{CSIMetricsManager: first}
	m.now.Store(&first)
	return m
}

func (m *rpcMetrics) current() csimetrics.CSIMetricsManager { return *m.now.Load() }

// SetDriverName sets the name of the driver whose calls are measured.
func (m *rpcMetrics) SetDriverName(name string) {
	if request.InTreePlugin(name) != "" {
		labelled := csimetrics.NewCSIMetricsManagerWithOptions(name, csimetrics.WithProcessStartTime(false),
			csimetrics.WithMigration())
		m.now.Store(&labelled)
		return
	}
	m.current().SetDriverName(name)
}

// RecordMetrics, WithLabelValues, HaveAdditionalLabel and GetRegistry forward to the current manager.
func (m *rpcMetrics) RecordMetrics(operation string, err error, took time.Duration) {
	m.current().RecordMetrics(operation, err, took)
}

func (m *rpcMetrics) WithLabelValues(labels map[string]string) (csimetrics.CSIMetricsManager, error) {
	return m.current().WithLabelValues(labels)
}

func (m *rpcMetrics) HaveAdditionalLabel(name string) bool {
	return m.current().HaveAdditionalLabel(name)
}

func (m *rpcMetrics) GetRegistry() metrics.KubeRegistry { return m.current().GetRegistry() }

// Gather implements prometheus.Gatherer.
func (m *rpcMetrics) Gather() ([]*dto.MetricFamily, error) { return m.current().GetRegistry().Gather() }

// ownMetrics are the metrics of the controllers. Once these have stopped, and the process waits, their gauges would
// stand still, so there are none.
type ownMetrics struct {
	*prometheus.Registry
	stopped atomic.Bool
}

// Gather implements prometheus.Gatherer.
func (m *ownMetrics) Gather() ([]*dto.MetricFamily, error) {
	if m.stopped.Load() {
		return nil, nil
	}
	return m.Registry.Gather()
}
