package admission

import (
	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// WebhooksName is the name of the webhook configurations for PVs and bindings, beside [podsafety.Name] and
// [podsafety.GateName] for new pods.
const WebhooksName = "csi-reclaimer"

// Paths of the webhooks.
const (
	pathPVs     = "/admit/persistentvolumes"
	pathPods    = "/admit/pods"
	pathPodHold = "/admit/pod-hold"
	pathPodGate = "/admit/pod-gate"
)

// timeoutSeconds is the time for which the API server waits for an answer, and so the delay that an unresponsive
// webhook adds to each write.
const timeoutSeconds = 4

// Service locates the webhooks for the API server.
type Service struct {
	Namespace, Name string
	// Port is the port of the Service. Default 443.
	Port int32
}

func (s Service) client(path string) admissionv1.WebhookClientConfig {
	port := s.Port
	if port == 0 {
		port = 443
	}
	return admissionv1.WebhookClientConfig{Service: &admissionv1.ServiceReference{Namespace: s.Namespace, Name: s.Name,
		Path: &path, Port: &port}}
}

func pvWebhookName(role volume.Role) string {
	if role == volume.RoleCompanion {
		return "companion.persistentvolumes.csi-reclaimer.io"
	}
	return "persistentvolumes.csi-reclaimer.io"
}

// PVWebhooks returns the configuration for API servers without MutatingAdmissionPolicy, which call the webhook for the
// same writes as [Policy]. It has one webhook for each role with drivers, and volume-guard reads the drivers from it
// ([NewDriverWatcher]). It needs match conditions (Kubernetes 1.28).
func PVWebhooks(at Service, drivers Drivers) *admissionv1.MutatingWebhookConfiguration {
	config := &admissionv1.MutatingWebhookConfiguration{
		TypeMeta:   metav1.TypeMeta{APIVersion: "admissionregistration.k8s.io/v1", Kind: "MutatingWebhookConfiguration"},
		ObjectMeta: metav1.ObjectMeta{Name: WebhooksName},
	}
	for _, role := range roles() {
		if len(drivers[role]) == 0 {
			continue
		}
		config.Webhooks = append(config.Webhooks, admissionv1.MutatingWebhook{
			Name: pvWebhookName(role), ClientConfig: at.client(pathPVs),
			Rules: []admissionv1.RuleWithOperations{onPVs()}, MatchConditions: conditions(role, drivers[role]),
			FailurePolicy: ptr.To(admissionv1.Ignore), ReinvocationPolicy: ptr.To(admissionv1.IfNeededReinvocationPolicy),
			SideEffects: ptr.To(admissionv1.SideEffectClassNone), TimeoutSeconds: ptr.To[int32](timeoutSeconds),
			AdmissionReviewVersions: []string{"v1"},
		})
	}
	return config
}

// PodWebhooks returns the configuration with which the API server asks whether a pod may be bound to a node: when a
// scheduler binds it, by the subresource pods/binding or by the legacy resource bindings, and when a pod is created
// with a node. A webhook that does not answer refuses nothing.
func PodWebhooks(at Service) *admissionv1.ValidatingWebhookConfiguration {
	hook := func(name string, resources []string, conditions ...admissionv1.MatchCondition) admissionv1.ValidatingWebhook {
		return admissionv1.ValidatingWebhook{
			Name: name, ClientConfig: at.client(pathPods), MatchConditions: conditions,
			Rules: []admissionv1.RuleWithOperations{{
				Operations: []admissionv1.OperationType{admissionv1.Create},
				Rule: admissionv1.Rule{
					APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: resources,
					Scope: ptr.To(admissionv1.NamespacedScope),
				},
			}},
			FailurePolicy: ptr.To(admissionv1.Ignore), SideEffects: ptr.To(admissionv1.SideEffectClassNone),
			TimeoutSeconds: ptr.To[int32](timeoutSeconds), AdmissionReviewVersions: []string{"v1"},
		}
	}
	return &admissionv1.ValidatingWebhookConfiguration{
		TypeMeta:   metav1.TypeMeta{APIVersion: "admissionregistration.k8s.io/v1", Kind: "ValidatingWebhookConfiguration"},
		ObjectMeta: metav1.ObjectMeta{Name: WebhooksName},
		Webhooks: []admissionv1.ValidatingWebhook{
			hook("bindings.csi-reclaimer.io", []string{"pods/binding", "bindings"}),
			hook("pods.csi-reclaimer.io", []string{"pods"}, admissionv1.MatchCondition{
				Name:       "on-a-node-with-claims",
				Expression: `has(object.spec.nodeName) && object.spec.nodeName != "" && has(object.spec.volumes) && object.spec.volumes.exists(v, has(v.persistentVolumeClaim) || has(v.ephemeral))`,
			}),
		},
	}
}
