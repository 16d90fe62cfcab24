"""resubmission"""
