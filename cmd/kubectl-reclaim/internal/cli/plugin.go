package cli

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"

	"github.com/csi-reclaimer/csi-reclaimer/internal/explain"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain/volumes"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// Plugin is the common part of the commands: the streams, and the cluster of the command line.
type Plugin struct {
	genericiooptions.IOStreams
	Kubeconfig *genericclioptions.ConfigFlags
	role       string
	// isTerminal reports whether a stream is a terminal, so that a person reads it or can answer there.
	isTerminal func(any) bool
}

func roleNames() []string {
	return []string{volume.RoleOwner.String(), volume.RoleCompanion.String(), volume.RoleObserver.String()}
}

// AsRole returns the value of --role, RoleUnknown if it is not set.
func (s *Plugin) AsRole() (volume.Role, error) {
	at := slices.Index(roleNames(), s.role)
	switch {
	case s.role == "":
		return volume.RoleUnknown, nil
	case at < 0:
		return volume.RoleUnknown, fmt.Errorf("--role=%s: must be one of %s", s.role, strings.Join(roleNames(), ", "))
	}
	return []volume.Role{volume.RoleOwner, volume.RoleCompanion, volume.RoleObserver}[at], nil
}

// Config returns the cluster's client configuration, with the plugin's user agent.
func (s *Plugin) Config() (*rest.Config, error) {
	config, err := s.Kubeconfig.ToRESTConfig()
	if err != nil {
		return nil, fmt.Errorf("find the cluster: %w", err)
	}
	return rest.AddUserAgent(config, Name), nil
}

// ClusterName returns the context of the kubeconfig, or host, the API server's address, if a flag names another cluster
// or there is no context.
func (s *Plugin) ClusterName(host string) string {
	set := func(flag *string) bool { return flag != nil && *flag != "" }
	switch flags := s.Kubeconfig; {
	case set(flags.APIServer):
		return host
	case set(flags.ClusterName):
		return *flags.ClusterName
	case set(flags.Context):
		return *flags.Context
	}
	raw, err := s.Kubeconfig.ToRawKubeConfigLoader().RawConfig()
	if err != nil || raw.CurrentContext == "" {
		return host
	}
	return raw.CurrentContext
}

// ShowCluster names the cluster of a shown change, by name and address, because objects of several clusters have equal
// names, and other programs change the current context.
func (s *Plugin) ShowCluster() error {
	config, err := s.Config()
	if err != nil {
		return err
	}
	name := s.ClusterName(config.Host)
	if name != config.Host {
		name += " (" + config.Host + ")"
	}
	PrintLine(s.ErrOut, "\nCluster "+name+".", false)
	return nil
}

// noteCluster names the flags that printed commands need, if a person reads them. Without these flags, the commands
// would change the cluster of the current context, which may have objects with the same names.
func (s *Plugin) noteCluster() {
	if s.isTerminal == nil || !s.isTerminal(s.Out) {
		return
	}
	var set []string
	for _, flag := range []struct {
		name  string
		value *string
	}{{"context", s.Kubeconfig.Context}, {"cluster", s.Kubeconfig.ClusterName}, {"server", s.Kubeconfig.APIServer},
		{"kubeconfig", s.Kubeconfig.KubeConfig}} {
		if flag.value != nil && *flag.value != "" {
			set = append(set, "--"+flag.name+"="+*flag.value)
		}
	}
	if len(set) > 0 {
		PrintLine(s.ErrOut, "To run a command from above in this cluster, add "+strings.Join(set, " ")+".", false)
	}
}

// Live returns the cluster, all of whose reads are live.
func (s *Plugin) Live() (explain.Cluster, error) {
	role, err := s.AsRole()
	if err != nil {
		return explain.Cluster{}, err
	}
	return s.liveAs(role)
}

// API returns the clients of the cluster, also if --role is wrong.
func (s *Plugin) API() (explain.API, error) {
	c, err := s.liveAs(volume.RoleUnknown)
	return c.API, err
}

func (s *Plugin) liveAs(role volume.Role) (explain.Cluster, error) {
	config, err := s.Config()
	if err != nil {
		return explain.Cluster{}, err
	}
	return explain.Live(config, role)
}

// Namespace returns the namespace of the command line, or all.
func (s *Plugin) Namespace(all bool) (string, error) {
	if all {
		return metav1.NamespaceAll, nil
	}
	namespace, _, err := s.Kubeconfig.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return "", fmt.Errorf("find the namespace: %w", err)
	}
	return namespace, nil
}

// Scope returns the namespace of the command line, or all, and the cluster, all of whose reads are live.
func (s *Plugin) Scope(all bool) (namespace string, c explain.Cluster, err error) {
	if namespace, err = s.Namespace(all); err != nil {
		return "", c, err
	}
	c, err = s.Live()
	return namespace, c, err
}

// CheckDriver returns an error if nothing in the cluster names a driver. What cannot be read is no error here.
func (s *Plugin) CheckDriver(ctx context.Context, driver string) error {
	if driver == "" {
		return nil
	}
	c, err := s.Live()
	if err != nil {
		return err
	}
	return volumes.CheckDriver(ctx, c, driver)
}

// ReadFile reads a file, or the input for "-".
func (s *Plugin) ReadFile(name string) ([]byte, error) {
	if name == "-" {
		return io.ReadAll(s.In)
	}
	return os.ReadFile(name) //nolint:gosec // the file that the user names
}

// answer asks a question and returns the trimmed answer. It is empty if ctx or the input ends first.
func (s *Plugin) answer(ctx context.Context, question string) string {
	fmt.Fprint(s.ErrOut, question+" ")
	answer := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(s.In).ReadString('\n') // an error means the end of the input, which is no answer
		answer <- strings.TrimSpace(line)
	}()
	select {
	case <-ctx.Done():
		return ""
	case said := <-answer:
		return said
	}
}

// ReadIn reads facts about a namespace, or about all, and shows them.
func ReadIn[F any](ctx context.Context, s *Plugin, all bool,
	read func(ctx context.Context, c explain.Cluster, namespace string) (F, error),
	show func(facts F, namespace string) error) error {
	namespace, c, err := s.Scope(all)
	if err != nil {
		return err
	}
	facts, err := read(ctx, c, namespace)
	if err != nil {
		return err
	}
	return show(facts, namespace)
}
