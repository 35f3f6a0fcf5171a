// Package register is the Gus protocol.
package register
