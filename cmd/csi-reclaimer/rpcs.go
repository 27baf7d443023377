package main

import (
	"sync/atomic"
	"time"

	csimetrics "github.com/kubernetes-csi/csi-lib-utils/metrics"
	dto "github.com/prometheus/client_model/go"
	"k8s.io/component-base/metrics"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/request"
)

// rpcMetrics measures the calls of the driver (csi_sidecar_operations_seconds). Only the driver's name tells whether they
// have the label migrated, so the calls before that, which ask for the name, are forgotten for those that have, as the stock
// external-provisioner does.
type rpcMetrics struct {
	// What is not overridden here is for servers, and for nobody in this program.
	csimetrics.CSIMetricsManager
	now atomic.Pointer[csimetrics.CSIMetricsManager]
}

func newRPCMetrics() *rpcMetrics {
	// The process's start time is in the legacy registry already, and twice is an error.
	first := csimetrics.NewCSIMetricsManagerWithOptions("", csimetrics.WithProcessStartTime(false))
	m := &rpcMetrics{CSIMetricsManager: first}
	m.now.Store(&first)
	return m
}

func (m *rpcMetrics) current() csimetrics.CSIMetricsManager { return *m.now.Load() }

// SetDriverName says whose calls they are.
func (m *rpcMetrics) SetDriverName(name string) {
	if request.InTreePlugin(name) != "" {
		labelled := csimetrics.NewCSIMetricsManagerWithOptions(name, csimetrics.WithProcessStartTime(false), csimetrics.WithMigration())
		m.now.Store(&labelled)
		return
	}
	m.current().SetDriverName(name)
}

// RecordMetrics, WithLabelValues, HaveAdditionalLabel and GetRegistry are those of csi-lib-utils.
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

// Gather returns what was measured so far.
func (m *rpcMetrics) Gather() ([]*dto.MetricFamily, error) { return m.current().GetRegistry().Gather() }
