// Package tracing sends the traces of a program to an OpenTelemetry collector.
package tracing

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"k8s.io/klog/v2"
)

const (
	// all is the sampling rate at which every trace is sent.
	all = 1_000_000
	// sendFor is how long one try to send a batch may take, and tryFor how long it is retried: of a collector
	// that is unavailable for longer, spans that exceed the queue are dropped.
	sendFor, tryFor = 5 * time.Second, 30 * time.Second
	// flushFor is how long the end of a program waits for its last spans to be sent.
	flushFor = 2 * time.Second
)

// Options are the flags for traces.
type Options struct {
	endpoint string
	rate     int
}

// Flags adds the flags that set o. The rate is that of Kubernetes' own TracingConfiguration
// (k8s.io/component-base/tracing/api/v1, samplingRatePerMillion).
func (o *Options) Flags(fs *pflag.FlagSet, what string) {
	fs.StringVar(&o.endpoint, "tracing-endpoint", "",
		"OpenTelemetry collector to which "+what+" are sent, by OTLP over gRPC: http://HOST:4317, or https:// for TLS. "+
			"The environment variables OTEL_EXPORTER_OTLP_CERTIFICATE and OTEL_EXPORTER_OTLP_HEADERS set its CA and further "+
			"headers. Default: no traces.")
	fs.IntVar(&o.rate, "tracing-sampling-rate-per-million", all,
		"How many of a million traces are sent.")
}

// Validate returns every setting that is wrong.
func (o *Options) Validate() error {
	var wrong []error
	if _, err := o.url(); err != nil {
		wrong = append(wrong, fmt.Errorf("--tracing-endpoint: %w", err))
	}
	if o.rate < 0 || o.rate > all {
		wrong = append(wrong, fmt.Errorf("--tracing-sampling-rate-per-million=%d: must be from 0 to %d", o.rate, all))
	}
	return errors.Join(wrong...)
}

// url returns the collector's, empty for none. HOST:PORT alone is without TLS, as in Kubernetes' own configuration.
func (o *Options) url() (string, error) {
	if o.endpoint == "" {
		return "", nil
	}
	full := o.endpoint
	if !strings.Contains(full, "://") {
		full = "http://" + full
	}
	u, err := url.Parse(full)
	switch {
	case err != nil:
		return "", fmt.Errorf("%q is no URL", o.endpoint) // the parser's error repeats what may hold a password
	case u.User != nil:
		return "", errors.New("a URL with a password is not allowed: set OTEL_EXPORTER_OTLP_HEADERS")
	case u.Scheme != "http" && u.Scheme != "https", u.Hostname() == "", strings.Trim(u.Path, "/") != "",
		u.RawQuery != "", u.Fragment != "":
		return "", fmt.Errorf("%q: must be http://HOST:PORT or https://HOST:PORT", o.endpoint)
	}
	return full, nil
}

// Start returns a TracerProvider, nil without a collector, and stop, which sends the last ones for at most
// two seconds. The collector may be unavailable: spans wait in a bounded queue, and are dropped
// when it is full. Traced calls never wait for it.
func (o *Options) Start(ctx context.Context, program, version string) (_ trace.TracerProvider, stop func(), _ error) {
	return o.start(ctx, program, version)
}

// start is Start with further options of the exporter.
func (o *Options) start(ctx context.Context, program, version string, further ...otlptracegrpc.Option) (
	_ trace.TracerProvider, stop func(), _ error) {
	endpoint, err := o.url()
	if err != nil || endpoint == "" {
		return nil, func() {}, err
	}
	ctx = context.WithoutCancel(ctx)
	exporter, err := otlptracegrpc.New(ctx, append(further, otlptracegrpc.WithEndpointURL(endpoint),
		otlptracegrpc.WithTimeout(sendFor), otlptracegrpc.WithRetry(otlptracegrpc.RetryConfig{Enabled: true,
			InitialInterval: time.Second, MaxInterval: sendFor, MaxElapsedTime: tryFor}))...)
	if err != nil {
		return nil, nil, fmt.Errorf("trace to %s: %w", endpoint, err)
	}
	about, err := resource.Merge(resource.NewSchemaless(attribute.String("service.name", program),
		attribute.String("service.version", version)), resource.Environment())
	if err != nil {
		return nil, nil, fmt.Errorf("trace to %s: read OTEL_RESOURCE_ATTRIBUTES: %w", endpoint, err)
	}
	logger := klog.FromContext(ctx)
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		logger.Info("Dropped traces", "collector", endpoint, "err", err)
	}))
	provider := sdktrace.NewTracerProvider(
		sdktrace.WithBatcher(exporter),
		sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.TraceIDRatioBased(float64(o.rate)/all))),
		sdktrace.WithResource(about),
	)
	return provider, func() {
		bound, cancel := context.WithTimeout(ctx, flushFor)
		defer cancel()
		if err := provider.Shutdown(bound); err != nil {
			logger.Info("Dropped the last traces", "collector", endpoint, "err", err)
			// Cancel what is still being sent: bound is over.
			_ = exporter.Shutdown(bound)
		}
	}, nil
}
