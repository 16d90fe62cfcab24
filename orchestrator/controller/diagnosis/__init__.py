"""Why a job failed or is pending."""
