//go:build linux

package nodes

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane/fakenode"
)

// sysctls are the kernel settings that a kubelet requires (pkg/kubelet/cm, setupKernelTunables). A kubelet that finds
// these values sets none, so that this machine stays unchanged.
var sysctls = map[string]string{
	"vm/overcommit_memory":      "1",
	"vm/panic_on_oom":           "0",
	"kernel/panic":              "10",
	"kernel/panic_on_oops":      "1",
	"kernel/keys/root_maxkeys":  "1000000",
	"kernel/keys/root_maxbytes": "25000000",
}

// usualKubeletPort is the port by which clients find a kubelet that do not look into its Node.
const usualKubeletPort = 10250

// writeFiles writes the configuration of the node.
func (n *Node) writeFiles() error {
	user, err := n.pool.cluster.ConfigFor(fakenode.User(n.name), fakenode.Group)
	if err != nil {
		return err
	}
	if n.pool.options.PodNetwork {
		user.Host = serviceURL
	}
	if n.pool.options.Links {
		if err := n.makeLink(user); err != nil {
			return err
		}
	}
	if err := controlplane.WriteKubeconfig(n.file("kubeconfig"), user); err != nil {
		return err
	}
	files := map[string]string{
		"containerd.toml":  n.containerdConfig(),
		"cni/network.conf": n.pool.podNetworkConfig(),
	}
	for key, value := range sysctls {
		files[filepath.Join("sysctl", key)] = value + "\n"
	}
	for name, content := range files {
		if err := os.MkdirAll(filepath.Dir(n.file(name)), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(n.file(name), []byte(content), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// makeLink has the kubelet reach the API server through a relay.
func (n *Node) makeLink(user *rest.Config) error {
	listener, err := n.pool.listen("127.0.0.1:0")
	if err != nil {
		return err
	}
	server := n.pool.cluster.Admin() // whose address is the API server's own, as this process reaches it
	if n.link, err = newLink(server, listener); err != nil {
		return err
	}
	user.Host = server.Host
	return nil
}

// stateDir is containerd's state directory. It outlives a killed run, and names the run's cgroups.
func (n *Node) stateDir() string { return n.file("state") }

// containerdConfig uses the snapshotter that needs nothing of the file system, and a pause image of our own. The
// namespaces give each node a /run and a /var/lib, so that default paths are its own.
func (n *Node) containerdConfig() string {
	return fmt.Sprintf(`version = 2
state = %q
disabled_plugins = ["io.containerd.internal.v1.opt"]
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = %q
  # Below the kubelet's own, nothing may be set where this machine is itself a container.
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "native"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = %q
    conf_dir = %q
`, n.stateDir(), PauseImage, n.pool.cni, n.file("cni"))
}

func (n *Node) kubeletArgs(port int) []string {
	config := n.file("kubelet.yaml")
	if err := os.WriteFile(config, n.kubeletConfig(port), 0o644); err != nil {
		config = "/dev/null" // the kubelet then ends and says so
	}
	rootDir := n.KubeletDir()
	if n.pool.options.commonDir() {
		rootDir = commonKubeletDir
	}
	args := []string{
		"--config=" + config,
		"--kubeconfig=" + n.file("kubeconfig"),
		"--root-dir=" + rootDir,
		"--hostname-override=" + n.name,
		"--v=2",
	}
	if n.pool.options.PodNetwork {
		args = append(args, "--node-ip="+n.address)
	}
	return args
}

// kubeletConfig is the configuration of a kubelet that shares its machine.
func (n *Node) kubeletConfig(port int) []byte {
	config := map[string]any{
		"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
		"authentication": map[string]any{
			"anonymous": map[string]any{"enabled": false}, "webhook": map[string]any{"enabled": false},
		},
		"authorization": map[string]any{"mode": "AlwaysAllow"},
		"address":       "127.0.0.1", "port": port, "readOnlyPort": 0, "healthzPort": 0,
		"containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
		"volumePluginDir":          n.file("volumeplugins"),
		"resolvConf":               "",
		// A kubelet owns each cgroup below its own for QoS, and kills unknown processes there.
		"cgroupDriver": "cgroupfs", "cgroupsPerQOS": false, "enforceNodeAllocatable": []string{},
		// Disk and memory are this machine's, and their state must not affect a test.
		"failSwapOn": false, "localStorageCapacityIsolation": false, "imageGCHighThresholdPercent": 100,
		"evictionHard": map[string]string{
			"memory.available": "1Mi", "nodefs.available": "1Mi", "nodefs.inodesFree": "1", "imagefs.available": "1Mi",
		},
		"makeIPTablesUtilChains": false,
		// A detach waits until the node has said that it does not use the volume: every 10 seconds, by default.
		"nodeStatusUpdateFrequency": "1s",
	}
	if !n.pool.cluster.Version().Before(controlplane.V1_36) && !cgroupVersion2() {
		config["failCgroupV1"] = false
	}
	if n.pool.options.Tunnel != "" {
		config["address"], config["port"] = n.address, usualKubeletPort
		config["authentication"] = map[string]any{
			"anonymous": map[string]any{"enabled": true}, "webhook": map[string]any{"enabled": false},
		}
	}
	maps.Copy(config, n.pool.options.Kubelet)
	content, err := yaml.Marshal(config)
	if err != nil {
		panic("kubelet configuration: " + err.Error()) // a value in Options.Kubelet is no JSON
	}
	return content
}
