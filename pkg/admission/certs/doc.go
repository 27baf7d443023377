// Package certs keeps the certificates of the webhooks: it makes one, stores it in a Secret that all
// replicas share, has the API server trust it (the caBundle of the webhook configurations), and
// changes it before it expires such that no request fails meanwhile.
package certs
