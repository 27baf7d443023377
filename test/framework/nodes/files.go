//go:build linux

package nodes

import (
	"archive/tar"
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane/fakenode"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/process"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/program"
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

// images are the nodes' images: each has one program and its command. A program that uses the network is linked without
// the C library, which is not in the image.
var images = map[string]struct {
	program string
	flags   []string
	args    []string
}{
	PauseImage:  {program: "writer", args: []string{"pause"}},
	WriterImage: {program: "writer"},
	FencerImage: {program: "fencer", flags: []string{"-tags=netgo"}},
}

// ProvisionerImage is the image that external-provisioner publishes, of the version in
// tools/external-provisioner/go.mod.
const ProvisionerImage = "registry.k8s.io/sig-storage/csi-provisioner:" + program.ProvisionerVersion

// ImportProvisioner compiles the stock external-provisioner, and gives it to the nodes as [ProvisionerImage].
func (p *Pool) ImportProvisioner(ctx context.Context) error {
	binary, err := program.BuildProvisioner(ctx, p.options.Progress)
	if err != nil {
		return err
	}
	return p.importProgram(ctx, ProvisionerImage, binary)
}

// ImportPause gives the nodes a copy of [PauseImage] under another name.
func (p *Pool) ImportPause(ctx context.Context, image string) error {
	binary, err := process.Build(ctx, "./test/framework/nodes/cmd/writer", p.options.Progress)
	if err != nil {
		return err
	}
	return p.importProgram(ctx, image, binary, "pause")
}

// importProgram gives the nodes an image of one static program.
func (p *Pool) importProgram(ctx context.Context, image, binary string, args ...string) error {
	content, err := os.ReadFile(binary)
	if err != nil {
		return err
	}
	var a archive
	if err := a.add(image, "program", content, args); err != nil {
		return err
	}
	return p.importArchive(ctx, &a)
}

func (p *Pool) importArchive(ctx context.Context, a *archive) error {
	text, err := a.bytes()
	if err != nil {
		return err
	}
	file := filepath.Join(p.Dir(), "image.tar")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		return err
	}
	defer func() { _ = os.Remove(file) }()
	return p.ImportImages(ctx, file)
}

// Image is an image of files.
type Image struct {
	// Name is the name by which pods ask for it, with registry and tag.
	Name string
	// Files are its only layer, folders before their files.
	Files []File
	// Command is the default command of a container, with Args.
	Command, Args []string
}

// File is a file or a folder of an image.
type File struct {
	// Path of the file in the image, without a slash in front. A folder's ends with one.
	Path string
	// Content of an executable file.
	Content []byte
	// Link is the target of a symbolic link. A file with one has no content.
	Link string
	// Mode are the permissions. Default: 0755.
	Mode int64
}

// Import gives the nodes images. Those with the same files share a layer.
func (p *Pool) Import(ctx context.Context, images ...Image) error {
	var a archive
	for _, image := range images {
		var files []entry
		for _, f := range image.Files {
			files = append(files, entry{name: f.Path, content: f.Content, link: f.Link,
				mode: cmp.Or(f.Mode, 0o755)})
		}
		if err := a.addImage(image.Name, files, image.Command, image.Args); err != nil {
			return err
		}
	}
	return p.importArchive(ctx, &a)
}

// writeImages writes the images as one archive in the format of docker save. Images of one program share a layer.
func writeImages(ctx context.Context, path string, progress io.Writer) error {
	var a archive
	for image, of := range images {
		content, err := programOf(ctx, of.program, of.flags, progress)
		if err == nil {
			err = a.add(image, of.program, content, of.args)
		}
		if err != nil {
			return fmt.Errorf("make images: %w", err)
		}
	}
	text, err := a.bytes()
	if err != nil {
		return fmt.Errorf("make images: %w", err)
	}
	return os.WriteFile(path, text, 0o644)
}

func programOf(ctx context.Context, program string, flags []string, progress io.Writer) ([]byte, error) {
	binary, err := process.Build(ctx, "./test/framework/nodes/cmd/"+program, progress, flags...)
	if err != nil {
		return nil, err
	}
	return os.ReadFile(binary)
}

// archive has images of the form that docker save writes.
type archive struct {
	entries  []entry
	manifest []map[string]any
	layers   map[string]bool // their files in the archive
}

// add adds an image of one program.
func (a *archive) add(image, program string, content []byte, args []string) error {
	return a.addImage(image, []entry{{name: program, content: content, mode: 0o755}},
		append([]string{"/" + program}, args...), nil)
}

// addImage adds an image of files.
func (a *archive) addImage(image string, files []entry, command, args []string) error {
	layer, err := tarOf(files...)
	if err != nil {
		return err
	}
	sum := digest(layer)
	file := sum + ".tar"
	if !a.layers[file] {
		if a.layers == nil {
			a.layers = map[string]bool{}
		}
		a.layers[file] = true
		a.entries = append(a.entries, entry{name: file, content: layer})
	}
	config, err := json.Marshal(map[string]any{
		"architecture": runtime.GOARCH, "os": "linux",
		"config": map[string]any{"Entrypoint": command, "Cmd": args},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{"sha256:" + sum}},
	})
	if err != nil {
		return err
	}
	name := digest(config) + ".json"
	a.entries = append(a.entries, entry{name: name, content: config})
	a.manifest = append(a.manifest,
		map[string]any{"Config": name, "RepoTags": []string{image}, "Layers": []string{file}})
	return nil
}

func (a *archive) bytes() ([]byte, error) {
	index, err := json.Marshal(a.manifest)
	if err != nil {
		return nil, err
	}
	return tarOf(append(a.entries, entry{name: "manifest.json", content: index})...)
}

// entry is a file, a symbolic link, or with a slash at the end of its name a folder.
type entry struct {
	name    string
	content []byte
	link    string
	mode    int64
}

func (e entry) header() *tar.Header {
	h := &tar.Header{Name: e.name, Size: int64(len(e.content)), Mode: max(e.mode, 0o644), Typeflag: tar.TypeReg}
	switch {
	case e.link != "":
		h.Typeflag, h.Linkname = tar.TypeSymlink, e.link
	case strings.HasSuffix(e.name, "/"):
		h.Typeflag = tar.TypeDir
	}
	return h
}

func tarOf(entries ...entry) ([]byte, error) {
	var out bytes.Buffer
	archive := tar.NewWriter(&out)
	for _, e := range entries {
		err := archive.WriteHeader(e.header())
		if err == nil {
			_, err = archive.Write(e.content)
		}
		if err != nil {
			return nil, errors.Join(err, archive.Close())
		}
	}
	err := archive.Close() // it writes the end
	return out.Bytes(), err
}

func digest(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}
