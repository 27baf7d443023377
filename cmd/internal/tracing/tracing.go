// Package tracing sends the traces of a program to an OpenTelemetry collector.
package tracing

import (
	"cmp"
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

	"github.com/csi-reclaimer/csi-reclaimer/internal/settings"
)

const (
	// all is the sampling rate that sends every trace.
	all = 1_000_000
	// sendFor bounds all tries to send a batch, which is dropped then. Spans that exceed the queue are dropped, too.
	sendFor = 30 * time.Second
	// flushFor bounds the wait for the last spans at the end of the program.
	flushFor = 2 * time.Second
)

// Options are the flags for traces.
type Options struct {
	endpoint string
	rate     int
	// flush replaces flushFor in tests. Default: flushFor.
	flush time.Duration
}

// Flags adds the flags that set o, with a help text that names the traces. The sampling rate has the unit of
// Kubernetes' own TracingConfiguration (k8s.io/component-base/tracing/api/v1, samplingRatePerMillion).
func (o *Options) Flags(fs *pflag.FlagSet, what string) {
	fs.StringVar(&o.endpoint, "tracing-endpoint", "",
		"OpenTelemetry collector (OTLP over gRPC). It gets "+what+". Its URL is http://HOST:4317, or https:// for TLS. "+
			"The environment variables OTEL_EXPORTER_OTLP_CERTIFICATE and OTEL_EXPORTER_OTLP_HEADERS set its CA and further "+
			"headers. Default: no traces.")
	fs.IntVar(&o.rate, "tracing-sampling-rate-per-million", all,
		"How many of a million traces are sent.")
}

// Validate returns an error that names all invalid settings, or nil.
func (o *Options) Validate() error {
	var wrong settings.Wrong
	_, err := o.url()
	wrong.If(err != nil, "--tracing-endpoint: %w", err)
	wrong.If(o.rate < 0 || o.rate > all, "--tracing-sampling-rate-per-million=%d: must be from 0 to %d", o.rate, all)
	return wrong.Err()
}

// url returns the collector's URL, or "". HOST:PORT without a scheme means no TLS, as in Kubernetes' own
// configuration.
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
		return "", fmt.Errorf("%q is no URL", o.endpoint) // the parser's error repeats the URL, which may contain a password
	case u.User != nil:
		return "", errors.New("a URL with a password is not allowed: set OTEL_EXPORTER_OTLP_HEADERS")
	case u.Scheme != "http" && u.Scheme != "https", u.Hostname() == "", strings.Trim(u.Path, "/") != "",
		u.RawQuery != "", u.Fragment != "":
		return "", fmt.Errorf("%q: must be http://HOST:PORT or https://HOST:PORT", o.endpoint)
	}
	return full, nil
}

// Start returns a TracerProvider, or nil without a collector, and stop, which sends the last spans for at most two
// seconds. If the collector is unavailable, spans wait in a bounded queue, and are dropped once it is full. Traced
// calls never wait for the collector. further are options for the exporter.
func (o *Options) Start(ctx context.Context, program, version string, further ...otlptracegrpc.Option) (
	_ trace.TracerProvider, stop func(), _ error) {
	endpoint, err := o.url()
	if err != nil || endpoint == "" {
		return nil, func() {}, err
	}
	ctx = context.WithoutCancel(ctx)
	exporter, err := otlptracegrpc.New(ctx, append(further, otlptracegrpc.WithEndpointURL(endpoint),
		otlptracegrpc.WithTimeout(sendFor), otlptracegrpc.WithRetry(otlptracegrpc.RetryConfig{Enabled: true,
			InitialInterval: time.Second, MaxInterval: 5 * time.Second, MaxElapsedTime: sendFor}))...)
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
		bound, cancel := context.WithTimeout(ctx, cmp.Or(o.flush, flushFor))
		defer cancel()
		if err := provider.Shutdown(bound); err != nil {
			logger.Info("Dropped the last traces", "collector", endpoint, "err", err)
			// Cancel the sending of the remaining spans, because the timeout has passed.
			_ = exporter.Shutdown(bound)
		}
	}, nil
}
