package driver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/csi-reclaimer/csi-reclaimer/cmd/internal/leader"
	"github.com/csi-reclaimer/csi-reclaimer/cmd/kubectl-reclaim/internal/cli"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain/volumes"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/leaks"
)

// errNoReport means that no pod serves a report.
var errNoReport = cli.NewError("no leak report is available", "check that csi-reclaimer runs there with "+
	"--leak-check-interval and --http-endpoint (--port), and is the leader; or fetch the report yourself: "+
	"docs/how-to/find-leaks.md")

// reportSource is the source of the leak check's report: the pod of the leading sidecar, or a file.
type reportSource struct {
	*cli.Plugin
	driver, pod, from string
	port              int
}

func (s *reportSource) flags(cmd *cobra.Command) {
	s.DriverFlag(cmd, &s.driver, "Name of the CSI driver. Required without --from.")
	fs := cmd.Flags()
	fs.StringVar(&s.pod, "pod", "", "Pod of the sidecar, as NAMESPACE/NAME. Default: the holder of the driver's Lease.")
	fs.IntVar(&s.port, "port", 8080, "Port of the sidecar's --http-endpoint.")
	fs.StringVar(&s.from, "from", "",
		"File with a report (/leaks?format=json of the sidecar), instead of a pod. -: standard input.")
	cmd.MarkFlagsMutuallyExclusive("pod", "from")
}

func (s *reportSource) validate() error {
	switch {
	case s.from == "" && s.driver == "":
		return errors.New("--driver is missing: name the CSI driver whose volumes to show (kubectl reclaim status lists " +
			"the drivers)")
	case s.port < 1 || s.port > 65535:
		return fmt.Errorf("--port=%d: must be a port number from 1 to 65535", s.port)
	case s.pod != "" && strings.Count(s.pod, "/") != 1:
		return fmt.Errorf("--pod=%s: must be NAMESPACE/NAME", s.pod)
	}
	return nil
}

// read returns the report, or an error if it is about a driver other than --driver.
func (s *reportSource) read(ctx context.Context) (leaks.Report, error) {
	var text []byte
	var err error
	if s.from == "" {
		text, err = s.fetch(ctx)
	} else {
		text, err = s.ReadFile(s.from)
	}
	if err != nil {
		return leaks.Report{}, fmt.Errorf("read the report: %w", err)
	}
	var report leaks.Report
	if err := json.Unmarshal(text, &report); err != nil {
		return leaks.Report{}, fmt.Errorf("read the report: it is not a leak report: %w", err)
	}
	if s.driver != "" && report.Driver != "" && report.Driver != s.driver {
		return leaks.Report{}, fmt.Errorf("read the report: it is about driver %s, not %s", report.Driver, s.driver)
	}
	return report, nil
}

func (s *reportSource) fetch(ctx context.Context) ([]byte, error) {
	c, err := s.Live()
	if err != nil {
		return nil, err
	}
	if err := volumes.CheckDriver(ctx, c, s.driver); err != nil {
		return nil, err
	}
	namespace, name, _ := strings.Cut(s.pod, "/")
	if s.pod == "" {
		if namespace, name, err = s.leader(ctx, c); err != nil {
			return nil, err
		}
	}
	text, err := c.Core.Pods(namespace).ProxyGet("", name, strconv.Itoa(s.port), "leaks",
		map[string]string{"format": "json"}).DoRaw(ctx)
	if apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("%w: pod %s/%s does not exist, or serves no /leaks on port %d: %w", errNoReport, namespace,
			name, s.port, err)
	}
	if apierrors.IsUnauthorized(err) {
		return nil, fmt.Errorf("pod %s/%s may require a token (--http-authorization), which the API server does not pass "+
			"on: fetch the report yourself through kubectl port-forward, and read it with --from=-: %w", namespace, name, err)
	}
	return text, err
}

// leader returns the pod that leads for the driver. A report decides which volumes a person deletes, so two candidates
// are an error.
func (s *reportSource) leader(ctx context.Context, c explain.Cluster) (namespace, name string, err error) {
	leaders, err := volumes.Leaders(ctx, c, s.driver)
	switch {
	case err != nil:
		return "", "", fmt.Errorf("find the leader: %w", err)
	case len(leaders) == 0:
		lease := leader.LeaseName(s.driver)
		return "", "", fmt.Errorf("%w: no pod holds Lease %s or %s-reclaimer; name the pod with --pod=NAMESPACE/NAME",
			errNoReport, lease, lease)
	case len(leaders) > 1:
		return "", "", cli.WithStep(fmt.Errorf("find the leader: several pods hold Leases of %s: %s", s.driver,
			strings.Join(leaders, ", ")), "name the pod of the driver's sidecar with --pod; with --node-deployment, ask the "+
			"pod of each node")
	}
	namespace, name, _ = strings.Cut(leaders[0], "/")
	cli.PrintLine(s.ErrOut, "The report is that of pod "+leaders[0]+", which leads for "+s.driver+".", false)
	return namespace, name, nil
}
