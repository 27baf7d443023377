//go:build unix

// Package rbac grants a service account of a test cluster the permissions of deploy/, so that the programs run with
// exactly the rights that operators give them.
package rbac

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/process"
)

// GrantSidecar makes the roles that csi-reclaimer ships for its role ("owner", "companion",
// "observer") and binds them to the service account. The binding for the whole cluster has the
// namespace's name.
func GrantSidecar(ctx context.Context, client kubernetes.Interface, namespace, account, as string) error {
	clusterRole, role, err := shippedRoles(as)
	if err != nil {
		return fmt.Errorf("read the shipped RBAC: %w", err)
	}
	if err := bindClusterRole(ctx, client, namespace, namespace, account, clusterRole); err != nil {
		return err
	}
	return makeRole(ctx, client, namespace, account, role)
}

// GrantSidecarToAll grants the permissions that csi-reclaimer ships to all service accounts, in all namespaces.
func GrantSidecarToAll(ctx context.Context, client kubernetes.Interface, as string) error {
	clusterRole, role, err := shippedRoles(as)
	if err != nil {
		return fmt.Errorf("read the shipped RBAC: %w", err)
	}
	clusterRole.Rules = append(clusterRole.Rules, role.Rules...)
	if _, err := client.RbacV1().ClusterRoles().Create(ctx, clusterRole, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("make cluster role: %w", err)
	}
	_, err = client.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: clusterRole.Name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: clusterRole.Name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "system:serviceaccounts"}},
	}, metav1.CreateOptions{})
	return err
}

const (
	guardFile    = "rbac-volume-guard.yaml"
	webhooksFile = "rbac-volume-guard-webhooks.yaml"
)

// controllerFile is the manifest for a controller that is off by default ("pvc-protection").
func controllerFile(controller string) string { return "rbac-volume-guard-" + controller + ".yaml" }

// guardFiles are the manifests for volume-guard with all controllers that are off by default.
func guardFiles() []string {
	return []string{guardFile, controllerFile("pvc-protection"), controllerFile("pv-protection"),
		controllerFile("pod-safety"), controllerFile("single-node"), controllerFile("statefulset-claims"),
		controllerFile("node-fencing"),
		webhooksFile}
}

// GrantGuard makes all roles that volume-guard ships and binds them to the service account.
func GrantGuard(ctx context.Context, client kubernetes.Interface, namespace, account string) error {
	_, err := guard(ctx, client, namespace, account, guardFiles()...)
	return err
}

// releaseDriversFile is the manifest for the time of a release of drivers.
const releaseDriversFile = "rbac-volume-guard-release-drivers.yaml"

// GrantReleaseDrivers makes the role for a release that removes drivers from admission policies, and binds it to the
// service account.
func GrantReleaseDrivers(ctx context.Context, client kubernetes.Interface, namespace, account string) error {
	_, err := guard(ctx, client, namespace, account, releaseDriversFile)
	return err
}

// GrantGuardReleasing grants volume-guard the permissions for --release-drivers, and returns their rules.
func GrantGuardReleasing(ctx context.Context, client kubernetes.Interface, namespace,
	account string) (rules []rbacv1.PolicyRule, err error) {
	return guard(ctx, client, namespace, account, guardFile, releaseDriversFile)
}

// GrantGuardByDefault grants the permissions for the default controllers and the webhooks, and returns the rules.
func GrantGuardByDefault(ctx context.Context, client kubernetes.Interface, namespace,
	account string) (rules []rbacv1.PolicyRule, err error) {
	return guard(ctx, client, namespace, account, guardFile, webhooksFile)
}

// GrantGuardController does so for controllers that are off by default ("pvc-protection") and no other, as the chart
// has it, and returns the rules.
func GrantGuardController(ctx context.Context, client kubernetes.Interface, namespace, account string,
	controllers ...string) (rules []rbacv1.PolicyRule, err error) {
	var files []string
	for _, name := range controllers {
		files = append(files, controllerFile(name))
	}
	rules, err = guard(ctx, client, namespace, account, files...)
	if err != nil {
		return nil, err
	}
	_, lease, err := guardRoles(guardFile)
	if err != nil {
		return nil, fmt.Errorf("read the shipped RBAC: %w", err)
	}
	return append(rules, lease.Rules...), makeRole(ctx, client, namespace, account, lease)
}

const (
	webFile       = "rbac-volume-guard-web.yaml"
	httpRolesFile = "http-roles.yaml"
	// authDelegator is the role of Kubernetes' own that is needed for --http-authorization and --web.
	authDelegator = "system:auth-delegator"
)

// GrantHTTPAuthorization binds the role for --http-authorization to the service account, and returns its rules.
func GrantHTTPAuthorization(ctx context.Context, client kubernetes.Interface, namespace,
	account string) (rules []rbacv1.PolicyRule, err error) {
	role, err := client.RbacV1().ClusterRoles().Get(ctx, authDelegator, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	return role.Rules, bindClusterRole(ctx, client, authDelegator+"-"+namespace, namespace, account,
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: authDelegator}})
}

// GrantGuardWeb grants volume-guard the permissions for its default controllers and its page, and returns the rules
// that the page adds.
func GrantGuardWeb(ctx context.Context, client kubernetes.Interface, namespace,
	account string) (rules []rbacv1.PolicyRule, err error) {
	if _, err := guard(ctx, client, namespace, account, guardFile); err != nil {
		return nil, err
	}
	reviews, err := GrantHTTPAuthorization(ctx, client, namespace, account)
	if err != nil {
		return nil, err
	}
	reads, err := guard(ctx, client, namespace, account, webFile)
	return append(reads, reviews...), err
}

// GrantHTTP creates the shipped roles for clients of --http-endpoint, and binds one of them to a service account.
func GrantHTTP(ctx context.Context, client kubernetes.Interface, role, namespace, account string) error {
	viewer, metrics, leaks := &rbacv1.ClusterRole{}, &rbacv1.ClusterRole{}, &rbacv1.ClusterRole{}
	if err := readShipped(httpRolesFile, viewer, metrics, leaks); err != nil {
		return fmt.Errorf("read the shipped RBAC: %w", err)
	}
	for _, one := range []*rbacv1.ClusterRole{viewer, metrics, leaks} {
		if one.Name == role {
			return bindClusterRole(ctx, client, role+"-"+namespace+"-"+account, namespace, account, one)
		}
	}
	return fmt.Errorf("%s has no role %q", httpRolesFile, role)
}

// fenceAgentsFile is the manifest for the agents of NodeFences.
const fenceAgentsFile = "rbac-volume-guard-fence-agents.yaml"

// GrantFenceAgents makes the roles for the agents of NodeFences, and binds them to the service account: those for Jobs
// and remediations in one namespace. It returns the rules for Jobs and for NetworkFences. It may be called for several
// namespaces.
func GrantFenceAgents(ctx context.Context, client kubernetes.Interface, namespace, account,
	agents string) (rules []rbacv1.PolicyRule, err error) {
	job, remediation, network := &rbacv1.ClusterRole{}, &rbacv1.ClusterRole{}, &rbacv1.ClusterRole{}
	if err := readShipped(fenceAgentsFile, job, remediation, network); err != nil {
		return nil, fmt.Errorf("read the shipped RBAC: %w", err)
	}
	for _, role := range []*rbacv1.ClusterRole{job, remediation} {
		if err := BindIn(ctx, client, agents, namespace, account, role); err != nil {
			return nil, err
		}
	}
	err = bindClusterRole(ctx, client, network.Name+"-"+namespace, namespace, account, network)
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return nil, err
	}
	return append(job.Rules, network.Rules...), nil
}

// BindIn makes a role, unless it is there, and binds it to a service account in one namespace.
func BindIn(ctx context.Context, client kubernetes.Interface, in, namespace, account string,
	role *rbacv1.ClusterRole) error {
	if _, err := client.RbacV1().ClusterRoles().Create(ctx, role,
		metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("make cluster role: %w", err)
	}
	return Bind(ctx, client, in, role.Name, "ClusterRole", role.Name, namespace, account)
}

// Bind binds a role, or in one namespace a cluster role, to a service account.
func Bind(ctx context.Context, client kubernetes.Interface, in, name, kind, role, namespace, account string) error {
	if _, err := client.RbacV1().RoleBindings(in).Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: role},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: account}},
	}, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("bind %s: %w", role, err)
	}
	return nil
}

// BindCluster binds a cluster role to a service account in all namespaces.
func BindCluster(ctx context.Context, client kubernetes.Interface, name, role, namespace, account string) error {
	if _, err := client.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: account}},
	}, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("bind %s: %w", role, err)
	}
	return nil
}

func guard(ctx context.Context, client kubernetes.Interface, namespace, account string,
	files ...string) (rules []rbacv1.PolicyRule, err error) {
	for _, file := range files {
		clusterRole, role, err := guardRoles(file)
		if err != nil {
			return nil, fmt.Errorf("read the shipped RBAC: %w", err)
		}
		if err := bindClusterRole(ctx, client, clusterRole.Name+"-"+namespace, namespace, account, clusterRole); err != nil {
			return nil, err
		}
		rules = append(rules, clusterRole.Rules...)
		if role == nil {
			continue
		}
		if err := makeRole(ctx, client, namespace, account, role); err != nil {
			return nil, err
		}
		rules = append(rules, role.Rules...)
	}
	return rules, nil
}

// guardRoles reads a role for the cluster, and one for the namespace if the file has one.
func guardRoles(file string) (*rbacv1.ClusterRole, *rbacv1.Role, error) {
	clusterRole, role := &rbacv1.ClusterRole{}, &rbacv1.Role{}
	err := readShipped(file, clusterRole, role)
	if errors.Is(err, io.EOF) {
		return clusterRole, nil, nil
	}
	return clusterRole, role, err
}

// bindClusterRole makes a role, unless it is there, and binds it by that name to the service account.
func bindClusterRole(ctx context.Context, client kubernetes.Interface, name, namespace, account string,
	role *rbacv1.ClusterRole) error {
	if _, err := client.RbacV1().ClusterRoles().Create(ctx, role,
		metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("make cluster role: %w", err)
	}
	if err := BindCluster(ctx, client, name, role.Name, namespace, account); err != nil {
		return err
	}
	return InForce(ctx, client, "", namespace, account, role.Rules)
}

// makeRole creates a role in its own namespace or the service account's, and binds it to the service account.
func makeRole(ctx context.Context, client kubernetes.Interface, namespace, account string, role *rbacv1.Role) error {
	in, binding := namespace, role.Name
	if role.Namespace != "" {
		in, binding = role.Namespace, role.Name+"-"+namespace
	}
	if _, err := client.RbacV1().Roles(in).Create(ctx, role,
		metav1.CreateOptions{}); err != nil && (in == namespace || !apierrors.IsAlreadyExists(err)) {
		return fmt.Errorf("make role: %w", err)
	}
	if err := Bind(ctx, client, in, binding, "Role", role.Name, namespace, account); err != nil {
		return err
	}
	return InForce(ctx, client, in, namespace, account, role.Rules)
}

// InForce waits until the API server grants the first verb and resource of each rule, in a namespace or, with none, in
// all. It learns of roles by watches of its own, and refuses requests of the program until then, which tests would see.
func InForce(ctx context.Context, client kubernetes.Interface, in, namespace, account string,
	rules []rbacv1.PolicyRule) error {
	for _, rule := range rules {
		if len(rule.Resources) == 0 {
			continue
		}
		resource, subresource, _ := strings.Cut(rule.Resources[0], "/")
		asked := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User:   "system:serviceaccount:" + namespace + ":" + account,
			Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated"},
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Namespace: in, Verb: rule.Verbs[0], Group: rule.APIGroups[0], Resource: resource, Subresource: subresource,
			},
		}}
		if len(rule.ResourceNames) > 0 {
			asked.Spec.ResourceAttributes.Name = rule.ResourceNames[0]
		}
		if err := wait.PollUntilContextCancel(ctx, 10*time.Millisecond, true, func(ctx context.Context) (bool, error) {
			answer, err := client.AuthorizationV1().SubjectAccessReviews().Create(ctx, asked, metav1.CreateOptions{})
			return err == nil && answer.Status.Allowed, err
		}); err != nil {
			return fmt.Errorf("wait until %s may %s %s: %w", account, rule.Verbs[0], rule.Resources[0], err)
		}
	}
	return nil
}

// capacityFile is the manifest for --enable-capacity.
const capacityFile = "rbac-capacity.yaml"

// GrantCapacity makes the role that csi-reclaimer ships for --enable-capacity, and binds it to the service
// account.
func GrantCapacity(ctx context.Context, client kubernetes.Interface, namespace, account string) error {
	role := &rbacv1.Role{}
	if err := readShipped(capacityFile, role); err != nil {
		return fmt.Errorf("read the shipped RBAC: %w", err)
	}
	return makeRole(ctx, client, namespace, account, role)
}

// CapacityRules returns the rules of that role.
func CapacityRules() ([]rbacv1.PolicyRule, error) {
	role := &rbacv1.Role{}
	if err := readShipped(capacityFile, role); err != nil {
		return nil, fmt.Errorf("read the shipped RBAC: %w", err)
	}
	return role.Rules, nil
}

// auditFile is the manifest for --leak-check-interval.
const auditFile = "rbac-leaks.yaml"

// GrantLeakCheck makes the role that csi-reclaimer ships for --leak-check-interval, and binds it to the service
// account by a binding for the whole cluster that has the name of role and namespace.
func GrantLeakCheck(ctx context.Context, client kubernetes.Interface, namespace, account string) error {
	role := &rbacv1.ClusterRole{}
	if err := readShipped(auditFile, role); err != nil {
		return fmt.Errorf("read the shipped RBAC: %w", err)
	}
	return bindClusterRole(ctx, client, role.Name+"-"+namespace, namespace, account, role)
}

// AuditRules returns the rules of that role.
func AuditRules() ([]rbacv1.PolicyRule, error) {
	role := &rbacv1.ClusterRole{}
	if err := readShipped(auditFile, role); err != nil {
		return nil, fmt.Errorf("read the shipped RBAC: %w", err)
	}
	return role.Rules, nil
}

// Rules returns the rules that operators install for a role of csi-reclaimer: for the whole
// cluster, and for the driver's namespace.
func Rules(as string) (cluster, namespaced []rbacv1.PolicyRule, err error) {
	clusterRole, role, err := shippedRoles(as)
	if err != nil {
		return nil, nil, fmt.Errorf("read the shipped RBAC: %w", err)
	}
	return clusterRole.Rules, role.Rules, nil
}

// shippedRoles reads the roles that operators install.
func shippedRoles(as string) (*rbacv1.ClusterRole, *rbacv1.Role, error) {
	clusterRole, role := &rbacv1.ClusterRole{}, &rbacv1.Role{}
	return clusterRole, role, readShipped("rbac-"+as+".yaml", clusterRole, role)
}

// readShipped reads a manifest that holds these objects, and no more.
func readShipped(file string, objects ...any) error {
	root, err := process.ModuleRoot()
	if err != nil {
		return err
	}
	data, err := os.ReadFile(filepath.Join(root, "deploy", "manifests", file))
	if err != nil {
		return err
	}
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(data), 4096)
	for _, into := range objects {
		if err := decoder.Decode(into); err != nil {
			return err
		}
	}
	if err := decoder.Decode(&struct{}{}); !errors.Is(err, io.EOF) {
		return fmt.Errorf("%s holds more than %d objects", file, len(objects))
	}
	return nil
}
