//go:build unix

package controlplane

import (
	"bytes"
	"context"
	"crypto/x509"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/process"
)

// The ports of one control plane, by purpose.
const (
	portEtcd = iota
	portEtcdPeer
	portAPIServer
	portControllerManager
	portScheduler
	portsNeeded
)

// The users of the components. Kubernetes grants each of them its rights at the first start (RBAC bootstrap policy).
const (
	adminUser             = "admin"
	mastersGroup          = "system:masters"
	controllerManagerUser = "system:kube-controller-manager"
	schedulerUser         = "system:kube-scheduler"
)

// ServiceIP is the address of the Service "kubernetes", the first one of the range. No process listens there: a program
// that runs pods must redirect them to the API server, whose certificate is valid for this address, too.
const ServiceIP = "10.0.0.1"

//go:embed audit-policy.yaml
var auditPolicy []byte

// files are the paths that components get. They do not depend on the ports.
type files struct {
	ca, servingCert, servingKey string
	serviceAccountKey           string
	auditPolicy, auditLog       string
	etcdData                    string
	flexVolumes                 string
}

// writeFiles makes the keys and the static configuration.
func (cp *ControlPlane) writeFiles(now time.Time) (f files, err error) {
	if cp.authority, err = newAuthority(now); err != nil {
		return files{}, err
	}
	serving, err := cp.authority.forServer(now)
	if err != nil {
		return files{}, err
	}
	tokenKey, err := newKey()
	if err != nil {
		return files{}, fmt.Errorf("create service account key: %w", err)
	}
	tokenPEM, err := encodeKey(tokenKey)
	if err != nil {
		return files{}, fmt.Errorf("create service account key: %w", err)
	}
	f = files{
		auditLog:    cp.folder.file("audit.log"),
		etcdData:    cp.folder.file("etcd"),
		flexVolumes: cp.folder.file("flexvolumes"),
	}
	for _, file := range []struct {
		path    *string
		name    string
		content []byte
	}{
		{&f.ca, "ca.crt", cp.authority.pem},
		{&f.servingCert, "serving.crt", serving.cert},
		{&f.servingKey, "serving.key", serving.key},
		{&f.serviceAccountKey, "service-account.key", tokenPEM},
		{&f.auditPolicy, "audit-policy.yaml", auditPolicy},
	} {
		if *file.path, err = cp.folder.write(file.name, file.content); err != nil {
			return files{}, err
		}
	}
	return f, nil
}

// define says how each component is started on these ports.
func (cp *ControlPlane) define(binary string, f files, ports []int) error {
	roots := x509.NewCertPool()
	roots.AddCert(cp.authority.certificate)
	component := func(name, health string, args ...string) *Component {
		return &Component{
			command: process.Command{
				Name: name, Path: binary, Args: append([]string{name}, args...),
				Dir: cp.folder.path, LogFile: cp.folder.file(name + ".log"),
			},
			health: health, roots: roots,
		}
	}
	secure := func(port int, path string) string { return fmt.Sprintf("https://127.0.0.1:%d%s", port, path) }

	cp.Etcd = component("etcd", fmt.Sprintf("http://127.0.0.1:%d/health", ports[portEtcd]),
		f.etcdData, strconv.Itoa(ports[portEtcd]), strconv.Itoa(ports[portEtcdPeer]))
	cp.APIServer = component("kube-apiserver", secure(ports[portAPIServer], "/readyz"), cp.apiServerArgs(f, ports)...)

	cp.ControllerManager, cp.Scheduler = nil, nil
	if !cp.options.NoControllerManager {
		args, err := cp.controllersArgs(f, ports[portControllerManager])
		if err != nil {
			return err
		}
		cp.ControllerManager = component("kube-controller-manager", secure(ports[portControllerManager], "/healthz"),
			args...)
	}
	if cp.options.Scheduler {
		kubeconfig, err := cp.componentKubeconfig("kube-scheduler", schedulerUser)
		if err != nil {
			return err
		}
		cp.Scheduler = component("kube-scheduler", secure(ports[portScheduler], "/healthz"),
			slices.Concat(clientArgs(kubeconfig), servingArgs(f, ports[portScheduler]), cp.options.SchedulerArgs)...)
	}
	return nil
}

func (cp *ControlPlane) apiServerArgs(f files, ports []int) []string {
	args := slices.Concat(servingArgs(f, ports[portAPIServer]), []string{
		fmt.Sprintf("--etcd-servers=http://127.0.0.1:%d", ports[portEtcd]),
		// Said, or a machine without a default route finds none.
		"--advertise-address=127.0.0.1",
		// Endpoints of the service "kubernetes" may not be loopback addresses.
		"--endpoint-reconciler-type=none",
		"--service-cluster-ip-range=10.0.0.0/24",
		"--client-ca-file=" + f.ca,
		"--authorization-mode=Node,RBAC",
		"--enable-admission-plugins=NodeRestriction",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + f.serviceAccountKey,
		"--service-account-signing-key-file=" + f.serviceAccountKey,
		"--allow-privileged=true",
		"--profiling=false",
	})
	if cp.options.AuditLog {
		args = append(args,
			"--audit-policy-file="+f.auditPolicy,
			"--audit-log-path="+f.auditLog,
			// An event is in the file before its request has ended, and the file is never rotated away.
			"--audit-log-mode=blocking",
			"--audit-log-maxsize=1000000", // MiB; 0 means 100 in some versions
		)
	}
	return append(args, cp.options.APIServerArgs...)
}

// controllersArgs returns the arguments of the controller manager, or of the lean program in its place.
func (cp *ControlPlane) controllersArgs(f files, port int) ([]string, error) {
	if cp.options.Lean {
		kubeconfig, err := cp.Kubeconfig(cp.Admin()) // it impersonates the service account of each controller
		if err != nil {
			return nil, err
		}
		qps := cp.options.controllerManagerQPS()
		return slices.Concat([]string{"--kubeconfig=" + kubeconfig, "--secure-port=" + strconv.Itoa(port),
			"--tls-cert-file=" + f.servingCert, "--tls-private-key-file=" + f.servingKey,
			fmt.Sprintf("--kube-api-qps=%d", qps), fmt.Sprintf("--kube-api-burst=%d", 2*qps)},
			cp.options.ControllerManagerArgs), nil
	}
	kubeconfig, err := cp.componentKubeconfig("kube-controller-manager", controllerManagerUser)
	if err != nil {
		return nil, err
	}
	return cp.controllerManagerArgs(f, kubeconfig, port), nil
}

func (cp *ControlPlane) controllerManagerArgs(f files, kubeconfig string, port int) []string {
	qps := cp.options.controllerManagerQPS()
	args := slices.Concat(clientArgs(kubeconfig), servingArgs(f, port), []string{
		"--controllers=" + cp.options.controllers(),
		// Each controller with its own rights, as kubeadm has it.
		"--use-service-account-credentials=true",
		"--service-account-private-key-file=" + f.serviceAccountKey,
		"--root-ca-file=" + f.ca,
		// The controller manager creates the folder, whose default is a system folder.
		"--flex-volume-plugin-dir=" + f.flexVolumes,
		"--profiling=false",
		fmt.Sprintf("--kube-api-qps=%d", qps),
		fmt.Sprintf("--kube-api-burst=%d", 2*qps),
	})
	if cp.options.HostPathProvisioner {
		args = append(args, "--enable-hostpath-provisioner=true")
	}
	return append(args, cp.options.ControllerManagerArgs...)
}

// servingArgs are of all components that serve HTTPS.
func servingArgs(f files, port int) []string {
	return []string{
		"--bind-address=127.0.0.1",
		"--secure-port=" + strconv.Itoa(port),
		"--tls-cert-file=" + f.servingCert,
		"--tls-private-key-file=" + f.servingKey,
	}
}

// clientArgs are the arguments of all components that are clients of the API server. Each has a single replica without
// leader election, so that a restart waits for no lease.
func clientArgs(kubeconfig string) []string {
	return []string{
		"--kubeconfig=" + kubeconfig,
		"--authentication-kubeconfig=" + kubeconfig,
		"--authorization-kubeconfig=" + kubeconfig,
		"--leader-elect=false",
	}
}

const (
	trimmedModule = "k8s.io/apiserver"
	// trimmedFile helps tests of admission plugins. It is the only reason why an API server has the packages of fake
	// clients, 7 % of the compilation. kube-scheduler has them, too.
	trimmedFile = "pkg/admission/plugin/policy/generic/policy_test_context.go"
	// trimmedPrefix begins the name of the module's copy.
	trimmedPrefix = "apiserver-"
)

// trim writes a go.mod into folder that takes [trimmedModule] from a copy without [trimmedFile], and returns its path,
// for -modfile. The copy lies in the cache, so that all binaries of the module share its packages.
func (b build) trim(ctx context.Context, folder string) (modfile string, err error) {
	var out bytes.Buffer
	if err := process.Run(ctx, b.goCommand(&out, "mod", "download", "-json", trimmedModule)); err != nil {
		return "", err
	}
	var module struct{ Version, Dir string }
	if err := json.Unmarshal(out.Bytes(), &module); err != nil {
		return "", fmt.Errorf("read where %s is: %w", trimmedModule, err)
	}
	copied := filepath.Join(b.cache, trimmedPrefix+module.Version)
	now := time.Now()
	if err := os.Chtimes(copied, now, now); errors.Is(err, fs.ErrNotExist) {
		whole := filepath.Join(folder, trimmedPrefix+module.Version)
		err = errors.Join(os.CopyFS(whole, os.DirFS(module.Dir)), os.Remove(filepath.Join(whole, trimmedFile)))
		if err != nil {
			return "", fmt.Errorf("copy %s: %w", trimmedModule, err)
		}
		if err := os.Rename(whole, copied); err != nil {
			return "", err
		}
	}
	modfile = filepath.Join(folder, "trimmed.mod")
	for from, to := range map[string]string{"go.mod": modfile, "go.sum": filepath.Join(folder, "trimmed.sum")} {
		content, err := os.ReadFile(filepath.Join(b.module, from))
		if err != nil {
			return "", err
		}
		if err := os.WriteFile(to, content, 0o644); err != nil {
			return "", err
		}
	}
	return modfile, process.Run(ctx, b.goCommand(nil, "mod", "edit", "-replace="+trimmedModule+"="+copied, modfile))
}
