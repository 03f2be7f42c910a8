package servers

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
)

// kafkaVersion is the one that kafka.pom.xml pins; it names the folder in the cache.
const kafkaVersion = "4.4.0"

//go:embed kafka.pom.xml
var kafkaPom []byte

// installKafka returns the folder with the broker's jars.
func installKafka(ctx context.Context) (lib string, err error) {
	if _, err := need("Kafka", "java", "apt-get install openjdk-17-jre-headless"); err != nil {
		return "", err
	}
	dir, err := installed(ctx, "kafka-"+kafkaVersion, fetchKafka)
	return filepath.Join(dir, "lib"), err
}

func fetchKafka(ctx context.Context, dir string) error {
	mvn, err := need("Kafka", "mvn", "apt-get install maven")
	if err != nil {
		return err
	}
	pom := filepath.Join(dir, "pom.xml")
	if err := os.WriteFile(pom, kafkaPom, 0o644); err != nil {
		return fmt.Errorf("write pom.xml: %w", err)
	}
	return runTool(ctx, nil, mvn, "-q", "-B", "-ntp", "-f", pom,
		"org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies", "-DoutputDirectory="+filepath.Join(dir, "lib"))
}
